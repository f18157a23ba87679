"""The papers' networks, and any module of the user's.

lora      low-rank adapters: few trained weights in a module that was trained before
lstm      Keras' LSTM, with one bias, for one client or many at once
networks  the papers' networks for images, records, words, sensors: `cnn`, `all-cnn-c`, `mlp`, `cnn-lstm` and others
registry  models by name, the default for a shape, or the user's own as `package.module:factory`
"""
