"""Layers with weights per client, and other ways to make a step cost less.

chains             layers that run one after the other for certain; pooling before relu
client_conv        convolutions with weights per client: one GPU kernel, or a loop on a CPU that pools at once
clipped_gradients  the sum of single records' clipped gradients, without writing the first layer's down
conv_kernels       the GPU kernels of `client_conv`
conv_products      the same convolutions as batched products
conv_window        where a convolution looks, and its way back as convolutions
dropout            dropout whose masks follow from a key
factored           large dense layers as shared weights plus each client's factors
first_linear       a model as rest(X·Wᵀ), found by trying
kept               large dense layers of which few weights are trained
"""
