# %% [markdown]
# # Your hospital's CSV
#
# After this tutorial you can go from a hospital's table to a private model: text columns, missing values, a rare
# outcome. The table here is made up, so you can try everything before you touch real patients.

# %% [markdown]
# ## A table as hospitals export it
#
# 6,000 admissions. The outcome depends on the columns, as it would in real life. A quarter of the lactate values was
# never measured, and the sex is not always known.

# %%
import csv
from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)
size = 6000
age = rng.integers(18, 96, size)
sex = rng.choice(["female", "male", ""], size, p=[0.49, 0.49, 0.02])
arrival = rng.choice(["walk-in", "ambulance", "transfer"], size, p=[0.55, 0.35, 0.10])
diagnoses = {
    "sepsis": 1.6,
    "heart failure": 0.7,
    "pneumonia": 0.5,
    "stroke": 0.9,
    "fracture": -1.0,
    "appendicitis": -1.4,
}
diagnosis = rng.choice(list(diagnoses), size, p=[0.08, 0.15, 0.20, 0.12, 0.25, 0.20])
lactate, creatinine = rng.gamma(2.0, 0.9, size), rng.gamma(3.0, 0.4, size)
pressure = rng.normal(125, 22, size)
risk = -2.9 + 0.045 * (age - 60) + 0.9 * (lactate - 1.8) + 0.5 * (creatinine - 1.2) - 0.025 * (pressure - 125)
risk += (
    1.0 * (arrival == "ambulance") + 0.5 * (arrival == "transfer") + np.array([diagnoses[name] for name in diagnosis])
)
died = rng.random(size) < 1 / (1 + np.exp(-risk))
unknown = rng.random((2, size)) < [[0.25], [0.10]]

with open("admissions.csv", "w", newline="") as file:
    table = csv.writer(file)
    table.writerow(["patient", "age", "sex", "arrival", "diagnosis", "lactate", "creatinine", "pressure", "outcome"])
    for i in range(size):
        values = [
            "" if unknown[0, i] else f"{lactate[i]:.1f}",
            "" if unknown[1, i] else f"{creatinine[i]:.2f}",
            f"{pressure[i]:.0f}",
        ]
        outcome = "died" if died[i] else "alive"
        table.writerow([f"P{i:04d}", age[i], sex[i], arrival[i], diagnosis[i], *values, outcome])

print(*Path("admissions.csv").read_text().splitlines()[:4], sep="\n")
print(f"{died.mean():.1%} died")

# %% [markdown]
# ## How good could it be?
#
# scikit-learn on all records in one place, without privacy. AUROC is the probability that a patient who died has a
# higher predicted risk than one who did not: 0.5 is a coin, 1 is perfect.

# %%
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

records = pd.read_csv("admissions.csv")
numbers = make_pipeline(SimpleImputer(), StandardScaler())
columns = make_column_transformer(
    (numbers, ["age", "lactate", "creatinine", "pressure"]),
    (OneHotEncoder(), ["sex", "arrival", "diagnosis"]),
)
pooled = make_pipeline(columns, LogisticRegression())
reachable = cross_val_score(pooled, records, records["outcome"] == "died", scoring="roc_auc").mean()
print(f"all records in one place, no privacy: AUROC {reachable:.3f}")

# %% [markdown]
# ## A draft of the schema
#
# A *schema* says what the columns are. `laconic schema init` looks at every column and drafts one: types, missing
# cells, how well a column tells the outcome by itself. A column that tells it too well may be the outcome in disguise.

# %%
# !laconic schema init admissions.csv --target outcome --positive died --out draft.toml

# %% [markdown]
# ## The schema
#
# The draft can be used as it is. Its ranges and levels come from the patients, which reveals something about
# them, and the privacy statement says so. It is better to write them down from *public* knowledge, as here. `fill`
# stands for a missing number. A missing text becomes a level of its own, Unknown. Columns that the schema does not name
# are never read.

# %%
schema = """
label = "outcome"
positive = "died"
patient = "patient"          # all records of a patient stay on one side of every split

[[numeric]]
column = "age"
min = 18
max = 95

[[numeric]]
column = "lactate"
min = 0
max = 6
fill = 1.5

[[numeric]]
column = "creatinine"
min = 0
max = 4
fill = 1.0

[[numeric]]
column = "pressure"
min = 60
max = 200

[[categorical]]
column = "sex"
levels = ["female", "male"]

[[categorical]]
column = "arrival"
levels = ["walk-in", "ambulance", "transfer"]

[[categorical]]
column = "diagnosis"
levels = ["sepsis", "heart failure", "pneumonia", "stroke", "fracture", "appendicitis"]
"""
with open("hospital.toml", "w") as file:
    file.write(schema)
# %% [markdown]
# ## What shall be protected?
#
# There are twelve hospitals here (`--num-clients 12` deals the patients out to as many). Twelve are too few to hide a
# whole hospital, but a single admission can be hidden well. So we take a *record-level* scheme. Every hospital adds
# noise to each of its own training steps. No other party has to be trusted: neither the server nor the other hospitals.
#
# | option | why this value |
# | --- | --- |
# | `--epsilon 4` | the promise; the noise is computed from it |
# | `--record-rate 0.2` | a record is used in a step with this probability |
# | `--prevalence 0.12` | the share of deaths, from public statistics; survivors are drawn less often |
# | `--batch-size 20` | what a step divides by: about as many records as it draws |
# | `--clip-norm 1` | no record counts more than this in a step |

# %%
# !laconic run fl-std-record-dp --dataset admissions.csv --schema hospital.toml --num-clients 12 --model logistic \
#     --epsilon 4 --clip-norm 1 --record-rate 0.2 --prevalence 0.12 --batch-size 20 --sampling-rate 1 --rounds 20 \
#     --local-steps 4 --local-lr 2 --momentum 0.7 --eval-every 20 --out runs/private --quiet

# %% [markdown]
# ## The result
#
# The run folder holds the model, the metrics and the privacy statement.

# %%
import json

rows = [json.loads(line) for line in Path("runs/private/rounds.jsonl").read_text().splitlines()]
statement = json.loads(Path("runs/private/privacy.json").read_text())
auroc = rows[-1]["auroc"]
print(f"AUROC {auroc:.3f} with privacy, {reachable:.3f} without")
print(statement["summary"])
print("protected:", statement["unit"])

# %% [markdown]
# ## New patients
#
# The preprocessing is saved with the model. New admissions need neither outcome nor hospital, and may have gaps.

# %%
new = """patient,age,sex,arrival,diagnosis,lactate,creatinine,pressure
N1,24,female,walk-in,appendicitis,,0.9,128
N2,87,,ambulance,sepsis,4.4,2.1,84
"""
with open("new.csv", "w") as file:
    file.write(new)
# %%
# !laconic predict runs/private new.csv --out predictions.csv

# %%
predictions = pd.read_csv("predictions.csv")
print(predictions[["patient", "probability"]].to_string(index=False))

# %% [markdown]
# ## Next
#
# - [From a hospital's export to a private model](../clinical.md): codes, several rows per patient, which privacy to
#   choose.
# - [All keys of a schema](../cli.md#health-records).
# - [A federation of three](federation.md): the same over real machines.
