"""Recurrent layers with weights per client.

client_recurrent  LSTM, GRU and their cells; dropout inside them by key
scans             the steps of LSTM and GRU for many clients at once, and their way back
"""
