"""The user's own files: read correctly, or refused with a one-line error.

folder     the user's own files: a folder with one file per client, or one table
frames     a client's table: CSV, gz and Parquet as records
npz        a client's arrays; sizes in headers are checked against the file
pictures   the user's own pictures, a folder per client with a folder per class: PNG and JPEG, none too large
texts      the user's own texts: a table with a column of text
user_file  what the readers share: separators and decimal commas, limits on unpacking, refusals in one line, bad cells
"""
