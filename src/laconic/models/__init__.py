"""The papers' networks, and any module of the user's.

lora       low-rank adapters: few trained weights in a module that was trained before
lstm       Keras' LSTM, with one bias, for one client or many at once
networks   the papers' networks for images and health records: `cnn`, `all-cnn-c`, `lfw-cnn`, `mlp`, `logistic`
registry   models by name, the default for a shape, or the user's own as `package.module:factory`
sequences  networks for words and sensors: `cnn-lstm`, `text-cnn`, `sensor-cnn`
"""
