# %% [markdown]
# # Your torch module
#
# After this tutorial you can train a network of your own with privacy, save it, resume the run, and send a fifth of the
# bytes. Any `torch.nn.Module` with float32 weights will do. There is one rule: no BatchNorm, because it mixes the
# records of a batch. Use GroupNorm.

# %%
import torch
from sklearn.datasets import load_digits
from torch import nn

import laconic


class Net(nn.Module):
    """A small convolutional network for pictures of 8 × 8 pixels."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.norm = nn.GroupNorm(2, 8)
        self.out = nn.Linear(8 * 4 * 4, 10)

    def forward(self, pictures):
        seen = torch.relu(self.norm(self.conv(pictures)))
        return self.out(torch.max_pool2d(seen, 2).flatten(1))


torch.manual_seed(0)
model = Net()
print(sum(weights.numel() for weights in model.parameters()), "weights")

# %% [markdown]
# ## Clients
#
# Clients are a list with one (inputs, targets) pair for each client. Arrays, tensors and map-style `Dataset`s are fine.
# Here we have 466 clients with three pictures each. 120 pictures are *public*: they belong to no client. The last 277
# are for the test.

# %%
pixels, labels = load_digits(return_X_y=True)
order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
pictures = torch.tensor(pixels / 16, dtype=torch.float32).view(-1, 1, 8, 8)[order]
labels = torch.tensor(labels)[order]

clients = list(zip(pictures[:1400].split(3), labels[:1400].split(3), strict=True))[:-1]
public = laconic.Records(pictures[1400:1520], labels[1400:1520])
test = laconic.Records(pictures[1520:], labels[1520:])
print(len(clients), "clients,", len(public.targets), "public pictures,", len(test.targets), "test pictures")

# %% [markdown]
# ## Train with privacy
#
# The loss is chosen by the shapes: class numbers and one output per class mean cross-entropy. Pass `loss=` for your
# own.

# %%
settings = {
    "clip_norm": 0.3,
    "noise_multiplier": 1.5,
    "local_lr": 0.15,
    "local_steps": 3,
    "server_lr": 1.0,
    "momentum": 0.9,
}
common = {"clients": clients, "test": test, "sampling_rate": 0.2, "delta": 1e-5, "eval_every": 5}

dense = laconic.run(laconic.schemes.fl_std_dp(**settings), model=model, rounds=15, out="runs/dense", **common)
print(f"accuracy {dense.last['accuracy']:.3f}, ε {dense.last['epsilon']:.2f} against an outsider")

# %% [markdown]
# Your `model` has not changed. The trained copy is `dense.model`. The folder `runs/dense` has the weights, a row per
# round, the privacy statement and a report for the browser.

# %% [markdown]
# ## Go on later
#
# The same call with `resume=True` and more rounds goes on where the run stopped. The printed ε is that of both parts
# together. A changed scheme or other clients are refused.

# %%
dense = laconic.run(
    laconic.schemes.fl_std_dp(**settings), model=model, rounds=20, out="runs/dense", resume=True, **common
)
print(f"round {dense.last['round']}: accuracy {dense.last['accuracy']:.3f}, ε {dense.last['epsilon']:.2f}")

# %% [markdown]
# ## A fifth of the bytes
#
# `fl_top_dp` trains and sends only a part of the weights: those that matter most. It finds them with the public
# pictures, so the choice costs no privacy. Nothing else changes.

# %%
top = laconic.schemes.fl_top_dp(ratio=0.2, init_steps=100, **settings)
small = laconic.run(top, model=model, public=public, rounds=20, **common)
for name, run in (("FL-STD-DP", dense), ("FL-TOP-DP, 20 %", small)):
    sent = run.ledger["bytes_up_per_client_and_round"]
    print(f"{name:16} accuracy {run.last['accuracy']:.3f}   {sent:5,.0f} bytes from a client in a round")

# %% [markdown]
# ## Use the model elsewhere
#
# The weights are plain safetensors. Nothing of laconic is needed to load them.

# %%
from safetensors.torch import load_file

again = Net()
again.load_state_dict(load_file("runs/dense/model.safetensors"))
with torch.no_grad():
    accuracy = (again(test.inputs).argmax(1) == test.targets).float().mean().item()
print(f"the file, loaded into a new network: {accuracy:.3f}")

# %% [markdown]
# `laconic.load` brings back the whole result: model, history, statement and bytes.

# %%
laconic.load("runs/dense", model=Net())

# %% [markdown]
# ## Next
#
# - [The Python guide](../python.md): samplers, budgets, a million clients, your own loss.
# - [Which scheme should I use?](../which-scheme.md)
# - [How FL-TOP chooses its weights](../maths.md#subsets-fl-rnd-fl-basic-fl-bas-2-to-4-fl-top-fl-top-bis)
