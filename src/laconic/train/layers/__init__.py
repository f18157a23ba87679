"""Layers with weights per client, and other ways to make a step cost less.

attention     attention for many clients at once; dropout inside it by key
conv          convolutions and group normalisation with weights per client
dense         large dense layers as shared weights plus each client's factors or few trained weights
dropout       dropout whose masks follow from a key
first_linear  a model as rest(X·Wᵀ); tests whether it has this form
kernels       the GPU kernels of convolutions and dropout masks, in Triton
recurrent     LSTM, GRU and their cells with weights per client
replacement   which layers may be replaced by one for all clients; pooling before ReLU
"""
