"""Health records: from a hospital's export, described by a small schema, to sparse records of patients.

blocks       CSV, gz and Parquet, some rows at a time
draft        a schema drafted from a table: roles, types, what is left out and why; as a file that explains itself
features     `Preprocessing`: fitted to training records, applied to all; scales of numbers; what fitting reveals
look         what the columns of a table look like; how well one alone tells the label
outcome      what is predicted: yes or no, one of several classes, a quantity between bounds
schema       `Schema`: what the columns of a table of health records are
sources      diabetes130, eicu-demo, ehr-synthetic, the user's own table
split        splits, hospitals and virtual hospitals that keep a patient's records together
synthetic    synthetic admissions with the marginals of the papers' private database
table        `EhrTable`: a table read once, every column encoded
toml_values  the values of a schema, checked and written back
"""
