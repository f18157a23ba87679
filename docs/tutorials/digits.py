# %% [markdown]
# # Private digits in five minutes
#
# After this tutorial you have trained a private model over 479 clients, and you can read what the run promises. It
# needs nothing but laconic and takes seconds on a laptop.

# %% [markdown]
# ## The data: 479 people with three digits each
#
# scikit-learn has 1,797 handwritten digits of 8 × 8 pixels. We keep a fifth for the test. The rest belongs to 479
# *clients*. Think of phones: each has three digits, and none of them may leave the phone.

# %%
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

pixels, labels = load_digits(return_X_y=True)
pixels = torch.tensor(pixels / 16, dtype=torch.float32)
labels = torch.tensor(labels)
train_x, test_x, train_y, test_y = train_test_split(pixels, labels, test_size=0.2, random_state=0)

clients = list(zip(train_x.split(3), train_y.split(3), strict=True))
print(len(clients), "clients, the first has the digits", clients[0][1].tolist())

# %% [markdown]
# ## How good could it be?
#
# If all digits were in one place, logistic regression would get this accuracy:

# %%
from sklearn.linear_model import LogisticRegression

together = LogisticRegression(max_iter=1000).fit(train_x, train_y).score(test_x, test_y)
print(f"all data in one place, no privacy: {together:.3f}")

# %% [markdown]
# ## A private federation
#
# A *scheme* says what clients send and what the server does. `fl_std_dp` is federated averaging with differential
# privacy. In each round a fifth of the clients takes part. Each one
#
# 1. takes five steps of gradient descent on its own three digits,
# 2. shortens its *update* (new weights minus old weights) to a norm of at most `clip_norm`,
# 3. adds its share of the noise, and sends the result.
#
# The server sees only the sum. `epsilon` is the promise for the whole run: smaller means more privacy, more noise and
# less accuracy. Laconic computes the noise from it. (`delta` is explained below.)

# %%
import laconic

torch.manual_seed(0)
model = torch.nn.Linear(64, 10)
torch.nn.init.zeros_(model.weight)  # random weights would be noise that has to be unlearnt first

scheme = laconic.schemes.fl_std_dp(clip_norm=0.4, local_lr=0.5, local_steps=5, server_lr=0.4, momentum=0.9)
result = laconic.run(
    scheme,
    model=model,
    clients=clients,
    test=(test_x, test_y),
    sampling_rate=0.2,
    rounds=40,
    epsilon=4,
    delta=1e-5,
    eval_every=5,
)
result

# %% [markdown]
# `result.model` is an ordinary torch module:

# %%
with torch.no_grad():
    guesses = result.model(test_x[:12]).argmax(1)
print("guesses", guesses.tolist())
print("truth  ", test_y[:12].tolist())

# %% [markdown]
# ## What is promised?
#
# Every run comes with a privacy statement. The main figure is ε. Suppose an adversary sees all its models and wants
# to know whether one client's digits were used. With ε = 0 they could only guess. The larger ε, the more they may
# learn. There are two ε, because the server knows more than an outsider: it also knows who took part in which round.

# %%
outsider = result.statement["released"]["epsilon"]["pld"]
server = result.statement["participant"]["epsilon"]["pld"]
print(f"outsider: ε = {outsider:.2f}")
print(f"server:   ε = {server:.2f}")
print(f"δ = {result.statement['delta']:g}: the chance that we tolerate for these bounds to fail")
print("protected:", result.statement["unit"])

# %% [markdown]
# The statement also lists what it assumes and what it does not cover. Read both before you quote an ε.

# %%
for text in result.statement["not_covered"]:
    print("not covered:", text)

# %% [markdown]
# ## What did it cost?
#
# Laconic counts every byte that clients send and receive.

# %%
up = result.ledger["bytes_up_per_client_and_round"]
down = result.ledger["bytes_down_per_client_and_round"]
print(f"a client sends {up:,.0f} and receives {down:,.0f} bytes in a round in which it takes part")

# %% [markdown]
# ## The whole run in one picture
#
# Both accuracy and ε grow with the rounds: more training costs more privacy.

# %%
import matplotlib.pyplot as plt

rows = [row for row in result.history if "accuracy" in row]
rounds = [row["round"] for row in rows]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
left.plot(rounds, [row["accuracy"] for row in rows], "o-", color="#0072B2", label="federated, private")
left.axhline(together, color="#D55E00", linestyle="--", label="all data in one place")
left.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))
left.legend(loc="lower right")
right.plot(rounds, [row["epsilon"] for row in rows], "o-", color="#0072B2", label="outsider")
right.plot(rounds, [row["participant_epsilon"] for row in rows], "s--", color="#D55E00", label="server")
right.set(xlabel="round", ylabel="ε so far", yscale="log")
right.legend()
plt.show()

# %% [markdown]
# ## Next
#
# - [Your hospital's CSV](hospital.md): the same with a table of your own, on the command line.
# - [Which scheme should I use?](../which-scheme.md) The others send fewer bytes.
# - [The threat model](../threat-model.md): who may learn what. [The glossary](../glossary.md) explains all terms.
