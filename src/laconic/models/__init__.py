"""The papers' networks, and any module of the user's.

all_cnn    `all-cnn-c`, the papers' network for CIFAR-10
lora       low-rank adapters: few trained weights in a module that was trained before
lstm       Keras' LSTM, with one bias
lstm_scan  its steps, for one client or many at once, and their way back
networks   the papers' networks for images and health records: `cnn`, `lfw-cnn`, `mlp`, `logistic`
registry   models by name, the default for a shape, or the user's own as `package.module:factory`
sequences  networks for words and sensors: `cnn-lstm`, `text-cnn`, `sensor-cnn`
"""
