"""A finished run for others: read back from its folder, or written as a file that other programs take.

export   `laconic.export_run`: a file and a model card, compared with the run's own model
formats  ONNX, TorchScript, safetensors
loaded   `laconic.load`: the result of a finished run
raw      from raw records to outputs: pixels, health records, a plain LSTM, scattering on real numbers
trained  its model as a module again, from what the folder says
"""
