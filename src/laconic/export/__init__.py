"""A finished run for others: read back from its folder, or written as a file that other programs take.

export         `laconic.export_run`: a file and a model card, compared with the run's own model
formats        ONNX, TorchScript, safetensors
loaded         `laconic.load`: the result of a finished run
plain_lstm     the LSTM as a plain loop
prepared       bytes of pixels and the preprocessing of health records, as modules
raw            from raw records to outputs, and what the run itself makes of the same
real_scattering  the scattering transform without complex numbers
trained        its model as a module again, from what the folder says
"""
