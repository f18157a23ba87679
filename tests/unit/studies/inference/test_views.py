"""What is seen of a round: every view is what the scheme's own functions give."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from laconic import schemes
from laconic.errors import ConfigError
from laconic.planning import plan_for
from laconic.privacy.accounting.sampling import FixedSize
from laconic.round import client_messages, first_server_state, release_stream
from laconic.scheme import Scheme
from laconic.streams import Streams
from laconic_studies.inference.views import Moment, check_views

SIZE, CLIENTS = 40, 4
TRAIN = {"local_lr": 0.1, "local_steps": 1}
STREAMS = Streams(3)


def moment(scheme: Scheme) -> Moment:
    sampler = FixedSize(cohort_size=CLIENTS)
    shared = {"kept": torch.arange(0, SIZE, 4)} if scheme.codec.needs_public else {}
    plan = plan_for(
        scheme,
        sampler,
        np.arange(CLIENTS),
        streams=STREAMS,
        round=1,
        attempt=0,
        num_clients=CLIENTS,
        shared=shared,
    )
    state = first_server_state(scheme, SIZE, scheme.codec.code_size(SIZE), torch.device("cpu"))
    return Moment(scheme=scheme, plan=plan, weights=torch.zeros(SIZE), state=state)


def sent(here: Moment, updates: Tensor) -> Tensor:
    streams = [STREAMS.stream("noise", 1, 0, client) for client in range(len(updates))]
    return client_messages(here.scheme, here.plan, updates, streams=streams)


UPDATES = torch.from_numpy(np.random.default_rng(0).normal(size=(CLIENTS, SIZE)).astype(np.float32))
SIZES = torch.tensor([10, 20, 10, 10])


def test_a_plain_code_is_seen_as_it_is() -> None:
    here = moment(schemes.fl_std(**TRAIN))
    assert torch.equal(here.single(sent(here, UPDATES)), UPDATES)


def test_others_count_by_their_records_where_the_scheme_does() -> None:
    here = moment(schemes.fl_std(**TRAIN))
    assert torch.allclose(here.others(UPDATES[1:], SIZES[1:]), 20 * UPDATES[1] + 10 * UPDATES[2] + 10 * UPDATES[3])
    votes = moment(schemes.fl_sign(**TRAIN))
    assert torch.equal(votes.others(sent(votes, UPDATES)[1:], SIZES[1:]), torch.sign(UPDATES[1:]).sum(0))


def test_the_total_less_ones_own_code_is_the_sum_of_the_others() -> None:
    """Also mod 2^b: the sum of the residues less one's own, read back."""
    here = moment(schemes.fl_std_dp(clip_norm=1.0, noise_multiplier=0.5, **TRAIN))
    messages = sent(here, UPDATES)
    assert not messages.is_floating_point()
    left = here.single((messages.sum(0) - messages[0])[None])[0]
    assert torch.equal(left, here.others(messages[1:], SIZES[1:]))


def test_integer_codes_are_read_in_units_of_the_code() -> None:
    here = moment(schemes.fl_std_dp(clip_norm=1.0, noise_multiplier=0.01, **TRAIN))
    clipped = UPDATES / UPDATES.norm(dim=1, keepdim=True)
    assert (here.single(sent(here, UPDATES)) - clipped).abs().max() < 0.05


def test_the_model_changes_as_the_server_changes_it() -> None:
    here = moment(schemes.fl_sign(sign_step=0.25, **TRAIN))
    messages = sent(here, UPDATES)
    change = here.model(messages, SIZES, release_stream(STREAMS, here.plan))
    vote = messages.sum(0)
    assert torch.equal(change[vote != 0], 0.25 * torch.sign(vote[vote != 0]))
    mean = moment(schemes.fl_std(**TRAIN))
    expected = (SIZES[:, None] * UPDATES).sum(0) / SIZES.sum()
    assert torch.allclose(mean.model(UPDATES, SIZES, release_stream(STREAMS, mean.plan)), expected, atol=1e-6)


@pytest.mark.parametrize("build", [schemes.fl_top, schemes.fl_cs])
def test_a_short_code_goes_back_to_the_weights_without_loss(build: object) -> None:
    here = moment(build(ratio=0.25, **TRAIN))  # type: ignore[operator]
    code = here.single(sent(here, UPDATES))[0]
    back = here.in_weights(code)
    assert back.shape == (SIZE,)
    assert torch.allclose(sent(here, back[None])[0], code, atol=1e-5)


def test_a_view_that_does_not_exist_is_refused() -> None:
    check_views(("single", "others", "model"))
    with pytest.raises(ConfigError, match="unknown view 'singel': did you mean 'single'"):
        check_views(("singel",))
