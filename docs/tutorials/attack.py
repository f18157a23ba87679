# %% [markdown]
# # Attack and defend
#
# After this tutorial you have broken a federation with two bad clients out of 200, and repaired it twice: once without
# privacy, and once with privacy, where no single client's message may be seen. Attacks run in the simulator
# only.

# %%
from dataclasses import replace

import torch
from sklearn.datasets import load_digits

import laconic

pixels, labels = load_digits(return_X_y=True)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
pixels = torch.tensor(pixels / 16, dtype=torch.float32)[order]
labels = torch.tensor(labels)[order]
clients = list(zip(pixels[:1400].split(7), labels[:1400].split(7), strict=True))
test = (pixels[1400:], labels[1400:])
torch.manual_seed(0)
model = torch.nn.Linear(64, 10)
torch.nn.init.zeros_(model.weight)
common = {"model": model, "clients": clients, "test": test, "rounds": 20, "eval_every": 20}

plain = laconic.schemes.fl_std(local_lr=0.5, local_steps=5)
honest = laconic.run(plain, sampling_rate=0.5, **common)
print(f"{len(clients)} honest clients: accuracy {honest.last['accuracy']:.3f}")

# %% [markdown]
# ## The attack
#
# Clients 3 and 77 train to make the loss *larger*, and send 50 times what comes out. An average cannot resist that.

# %%
from laconic.adversary.attacks.gradient_ascent import GradientAscent

attack = GradientAscent(malicious=(3, 77), boost=50)
broken = laconic.run(plain, sampling_rate=0.5, attack=attack, **common)
print(f"2 of {len(clients)} attack: accuracy {broken.last['accuracy']:.3f}")

# %% [markdown]
# ## A defence without privacy
#
# Without noise the server sees what each client sends. It can take the median of every weight instead of the mean. A
# few clients cannot move a median far, however loud they are.

# %%
from laconic.aggregate.medians import Median

robust = laconic.run(replace(plain, aggregator=Median()), sampling_rate=0.5, attack=attack, **common)
print(f"the same attack against the median: accuracy {robust.last['accuracy']:.3f}")

# %% [markdown]
# ## With privacy it is harder
#
# In a private run the server sees only the sum, so it cannot take a median. Honest clients clip their updates.
# Attackers do not.

# %%
private = laconic.schemes.fl_std_dp(
    clip_norm=0.3, noise_multiplier=3.0, local_lr=0.3, local_steps=5, server_lr=2.0, ring_bits=28
)
common |= {"sampling_rate": 1.0, "delta": 1e-3}
shielded = laconic.run(private, **common)
spoilt = laconic.run(private, attack=attack, **common)
print(f"private, all honest: accuracy {shielded.last['accuracy']:.3f}, ε {shielded.last['epsilon']:.2f}")
print(f"private, 2 attack:   accuracy {spoilt.last['accuracy']:.3f}")

# %% [markdown]
# ## Group testing
#
# Split the clients at random into 20 groups, and sum each group by itself, with its own noise. A sum that is longer
# than honest clients can make it is left out. In every round the groups are new. A client in spoilt groups again and
# again is excluded. No single client was looked at.

# %%
grouped = replace(private, groups=20)
defended = laconic.run(grouped, group_testing=True, attack=attack, **common)
excluded = {client: row["round"] for row in defended.history for client in row.get("newly_excluded", [])}
print(f"private, 2 attack, group testing: accuracy {defended.last['accuracy']:.3f}")
print("excluded, by round:", excluded)

# %% [markdown]
# ## Side by side

# %%
import matplotlib.pyplot as plt

bars = {
    "honest": honest,
    "attack": broken,
    "attack,\nmedian": robust,
    "private,\nhonest": shielded,
    "private,\nattack": spoilt,
    "private, attack,\ngroup testing": defended,
}
figure, axes = plt.subplots(figsize=(9, 3.2), layout="constrained")
colours = ["#0072B2", "#D55E00", "#009E73"] * 2
drawn = axes.bar(list(bars), [run.last["accuracy"] for run in bars.values()], color=colours)
axes.bar_label(drawn, fmt="%.2f")
axes.set(ylabel="test accuracy", ylim=(0, 1.05), title="Two of 200 clients attack")
plt.show()

# %% [markdown]
# ## What the ε says under attack
#
# Attackers also leave out their share of the noise. The ε then holds only if the run was planned with as many
# colluders. The statement says whether it was. `--max-colluders` on the command line is `max_colluders` here.

# %%
print(spoilt.statement["attack"]["text"])

# %% [markdown]
# ## Next
#
# - [Attacks](../attacks.md): nine attacks, eight robust rules, and the limits of group testing.
# - [What updates reveal](../results/inference.md): attackers that only look.
# - [Audits](../audit.md): is the printed ε true?
