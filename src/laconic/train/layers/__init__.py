"""Layers with weights per client, and other ways to make a step cost less.

attention          attention for many clients at once; dropout inside it by key
chains             layers that certainly run one after the other; pooling before ReLU
client_conv        convolutions with weights per client: one GPU kernel, or a loop on a CPU that pools at once
client_norm        group normalisation with weights per client, as one call
clipped_gradients  the sum of per-record clipped gradients, without storing those of the first layer
conv_kernels       the GPU kernels of `client_conv`, in Triton
conv_products      the same convolutions as batched products
conv_window        where a convolution looks, and its way back as convolutions
dropout            dropout whose masks follow from a key
dropout_kernel     its masks on a GPU, in Triton
factored           large dense layers as shared weights plus each client's factors
first_linear       a model as rest(X·Wᵀ); tests whether it has this form
kept               large dense layers with few trained weights
recurrent/         LSTM, GRU and their cells with weights per client
"""
