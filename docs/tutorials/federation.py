# %% [markdown]
# # A federation of three
#
# After this tutorial you have trained one model with three clinics that do not share their records. Each clinic is a
# process of its own with its own keys. The server sees only masked sums. Everything runs on this machine, over TLS on
# the loopback network, and takes two minutes.
#
# You need Flower, which carries the bytes: `pip install '.[flower]'` in a checkout.

# %% [markdown]
# ## Three clinics
#
# scikit-learn has measurements of 569 breast tumours. Three clinics hold 150 each, in a file of their own. The other
# 119 are for the test. Numbers are scaled by fixed means and spreads that all clinics were told.

# %%
import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

tumours = load_breast_cancer()
chosen = [0, 1, 4, 6, 7, 20, 21, 24, 26, 27]
names = [tumours.feature_names[column].replace(" ", "_") for column in chosen]
values = tumours.data[:, chosen]
values = ((values - values.mean(0)) / values.std(0)).round(3)
order = np.random.default_rng(0).permutation(len(values))
values, benign = values[order], tumours.target[order]

Path("clinics").mkdir()
owners = {"clinic-a": slice(0, 150), "clinic-b": slice(150, 300), "clinic-c": slice(300, 450), "test": slice(450, None)}
for owner, rows in owners.items():
    with open(f"clinics/{owner}.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*names, "benign"])
        table.writerows([*row, label] for row, label in zip(values[rows], benign[rows], strict=True))
print(f"{len(names)} measurements; {benign.mean():.0%} of the tumours are benign")
print(*sorted(path.name for path in Path("clinics").iterdir()))

# %% [markdown]
# ## What will it promise?
#
# Ask before anything is trained. Three clients are few, and each takes part in every round. So the noise has to hide a
# whole clinic behind two others. That works because the model is tiny: eleven weights.

# %%
# !laconic plan fl-std-dp --dataset clinics --target benign --classes malignant,benign --model logistic \
#     --epsilon 8 --delta 1e-5 --clip-norm 1 --sampling-rate 1 --rounds 3 --local-steps 20 --local-lr 0.5

# %% [markdown]
# ## Run it
#
# `laconic federate` starts a server and three nodes, makes temporary certificates and keys, runs three rounds and stops
# everything again. On real hosts you start the same programs one by one, [host by host](../federation.md#host-by-host).

# %%
# !laconic federate fl-std-dp --dataset clinics --target benign --classes malignant,benign --model logistic \
#     --epsilon 8 --delta 1e-5 --clip-norm 1 --sampling-rate 1 --rounds 3 --local-steps 20 --local-lr 0.5 \
#     --nodes 3 --out runs/three --quiet

# %% [markdown]
# ## Is the model any good?
#
# We judge it on the 119 tumours that no clinic had, beside a model that was trained on all records in one place.

# %%
from safetensors.numpy import load_file

weights = load_file("runs/three/model.safetensors")
scores = values[450:] @ weights["1.weight"][0] + weights["1.bias"]  # logistic regression is a weighted sum
auroc = roc_auc_score(benign[450:], scores)
pooled = LogisticRegression().fit(values[:450], benign[:450])
reachable = roc_auc_score(benign[450:], pooled.predict_proba(values[450:])[:, 1])
print(f"AUROC {auroc:.2f} in the private federation, {reachable:.2f} with all records in one place")

# %% [markdown]
# ## What did the server see?
#
# Nothing of a single clinic. Each one sent its update as masked integers, which look random. The masks cancel in the
# sum.

# %%
import json

statement = json.loads(Path("runs/three/privacy.json").read_text())
rows = [json.loads(line) for line in Path("runs/three/rounds.jsonl").read_text().splitlines()]
print(statement["summary"])
print(rows[0]["bytes_up"] // rows[0]["messages_up"], "bytes of update from each clinic in a round")

# %% [markdown]
# ## What each clinic knows
#
# Every node keeps a log of what it took part in, and what it cost. Its owner can also set a *policy*: the largest ε,
# the schemes, the servers it trusts. A node refuses what its policy does not allow.

# %%
# !laconic node status runs/three/federation/node-0/folder

# %% [markdown]
# ## Next
#
# - [Federations](../federation.md): separate hosts, policies, what happens when a node fails.
# - [The protocol](../protocol.md): how masks work, and what they guarantee.
# - [The threat model](../threat-model.md#who-sees-what): who sees what.
