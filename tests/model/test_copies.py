"""What `find_copies` says of repeated elements and of a memory format that only the tensor behind the views had."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from helpers.model.copies import find_copies
from helpers.model.views import REPEATS

K = torch.arange(64.0).view(1, 2, 8, 4)
ORDER = "`enable_gqa` takes the heads in the order of `repeat_interleave`."


def expanded(k: torch.Tensor) -> torch.Tensor:
    return k[:, :, None].expand(1, 2, 4, 8, 4)


# Keys that are repeated for four heads


@pytest.mark.parametrize(
    ("repeat", "why"),
    [
        (lambda k: k.repeat_interleave(4, 1), "it writes every repetition out"),
        (lambda k: torch.repeat_interleave(k, 4, dim=1), "it writes every repetition out"),
        (lambda k: k.repeat(1, 4, 1, 1), "where expand would repeat with stride 0"),
        (lambda k: k.tile(1, 4, 1, 1), "where expand would repeat with stride 0"),
        (lambda k: torch.cat([k] * 4, 1), "it writes one tensor 4 times"),
        (lambda k: torch.stack(tensors=[k] * 4, dim=2), "it writes one tensor 4 times"),
    ],
)
def test_repetitions_that_are_written_out_are_counted_and_not_called_hidden(repeat, why):
    found = find_copies(repeat, K)
    assert "made no hidden copy, only 1 that its operators cannot avoid" in found.text
    assert f"{why}; that is 4× the bytes (1,024 bytes from 256))" in found.text
    assert (found.nbytes, found.facts["hidden"], found.copies[0].kind) == (0, 0, "always")
    assert found.remedy.startswith("Where the repetitions are only read, expand repeats a dimension of size 1")
    assert REPEATS in found.remedy
    assert (ORDER in found.remedy) == ("every repetition out" not in why or "expand" in why)


def test_enable_gqa_takes_the_heads_in_the_order_of_repeat_interleave():
    q, k = torch.randn(1, 8, 8, 4), torch.randn(1, 2, 8, 4)
    attend = F.scaled_dot_product_attention
    wide, other = k.repeat_interleave(4, 1), k.repeat(1, 4, 1, 1)
    grouped = attend(q, k, k, enable_gqa=True)
    assert torch.allclose(grouped, attend(q, wide, wide), atol=1e-5)
    assert not torch.allclose(grouped, attend(q, other, other), atol=1e-5)
    healthy = find_copies(lambda: attend(q, k, k, enable_gqa=True))
    assert (healthy.copies, healthy.remedy) == ((), "")


@pytest.mark.parametrize(
    "healthy",
    [
        lambda k: k.repeat(1, 1, 1, 1),
        lambda k: k.repeat_interleave(1, 1),
        lambda k: k.repeat_interleave(torch.tensor([1, 3]), 1),
        lambda k: torch.cat([k], 1),
        lambda k: torch.cat([k, k + 1], 1),
        lambda k: k[:, [0, 0, 1, 1]],
        lambda k: k.clone(),
        lambda k: k.expand(1, 2, 8, 4).clone(),
    ],
)
def test_what_repeats_nothing_or_not_evenly_gets_no_advice(healthy):
    found = find_copies(healthy, K)
    assert "made no hidden copy" in found.text
    assert found.remedy == ""


def test_parts_of_one_storage_are_not_said_to_lie_in_different_ones():
    assert "its parts lie in different storages" in find_copies(lambda: torch.cat([K, K + 1])).text
    halves = find_copies(lambda: torch.cat([K[:, :1], K[:, 1:]], 1))
    assert "it always writes its parts to a new storage" in halves.text
    mixed = find_copies(lambda: torch.cat([K, K, K + 1]))
    assert "it always writes its parts to a new storage" in mixed.text
    sparse = find_copies(lambda: torch.cat([torch.eye(2).to_sparse()] * 2))
    assert "could not be judged" not in sparse.text


def test_contiguous_after_expand_is_not_to_be_left_out():
    found = find_copies(lambda: expanded(K).contiguous().view(1, 8, 8, 4))
    assert found.text.startswith(
        "`contiguous` after expand cloned 4× the bytes (1,024 bytes from 256) because dimension 2 has stride 0"
    )
    assert "the expand saved nothing" in found.text
    assert found.remedy == REPEATS, "without contiguous, view would raise"
    assert find_copies(lambda: K.contiguous().view(1, 2, 32)).copies == ()
    assert "Leave it out" in find_copies(lambda: K.mT.contiguous()).remedy, "a transposed one is as before"


def test_a_clone_of_an_expanded_tensor_is_asked_for_and_its_bytes_are_told():
    found = find_copies(lambda: expanded(K).clone())
    assert "made no hidden copy, only 1 that was asked for" in found.text
    assert "`clone` was called, and dimension 2 has stride 0: 4× the bytes (1,024 bytes from 256)" in found.text
    assert found.remedy.startswith("Where each repetition is to be written to, the copy is needed.")


def test_a_conversion_writes_the_repetitions_out_and_before_the_expand_it_does_not():
    late = find_copies(lambda: expanded(K).to(torch.float64))
    assert "float32 became float64, and dimension 2 has stride 0, so each repetition was written out" in late.text
    assert "8× the bytes (2,048 bytes from 256)" in late.text
    assert late.remedy == "Convert before the expand, so that each element is converted and written once."
    assert "× the bytes" not in find_copies(lambda: K[:, :, None].expand(1, 2, 2, 8, 4).half()).text, "256 from 256"
    early = find_copies(lambda: expanded(K.to(torch.float64)))
    assert early.nbytes == 512
    assert "repetition" not in early.text


def test_contiguous_windows_are_written_out_too():
    found = find_copies(lambda: torch.zeros(9).unfold(0, 4, 1).contiguous())
    assert "several indices read one slot, so it wrote 2.67× the bytes (96 bytes from 36)" in found.text


# A memory format that is lost behind views


IMAGES = torch.arange(256.0).view(2, 8, 4, 4).to(memory_format=torch.channels_last)
BEHIND = "read a channels_last tensor through views and copied 1,024 bytes into a new storage, and the layout changed"


def shuffled(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shuffled_like_torchvision(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


@pytest.mark.parametrize("shuffle", [shuffled, shuffled_like_torchvision])
def test_a_channel_shuffle_loses_channels_last_behind_its_views(shuffle):
    found = find_copies(shuffle, IMAGES)
    result = shuffle(IMAGES)
    assert result.is_contiguous()
    assert not result.is_contiguous(memory_format=torch.channels_last)
    assert f"{BEHIND} channels_last → contiguous" in found.text
    assert "a later convolution in channels_last converts it again" in found.text
    assert "convert back once, .contiguous(memory_format=torch.channels_last)" in found.remedy


def test_a_later_convolution_in_channels_last_does_convert_it_again():
    weight = torch.ones(4, 8, 3, 3).to(memory_format=torch.channels_last)
    found = find_copies(lambda: F.conv2d(shuffled(IMAGES), weight))
    assert [(c.kind, c.nbytes) for c in found.copies] == [("reshape", 1024), ("inside", 1024)]
    assert BEHIND in found.text


@pytest.mark.parametrize("shuffle", [shuffled, shuffled_like_torchvision])
def test_a_shuffle_that_is_converted_back_is_told_that_this_is_right(shuffle):
    found = find_copies(lambda: shuffle(IMAGES).contiguous(memory_format=torch.channels_last))
    assert "the code converts it back to channels_last" in found.text
    assert found.remedy.startswith("One conversion back is right")


def test_space_to_depth_and_five_dimensions_lose_the_format_too():
    def space_to_depth(x):
        n, c, h, w = x.shape
        return x.view(n, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4).reshape(n, 4 * c, h // 2, w // 2)

    def volumes(x):
        n, c, *size = x.shape
        return x.view(n, 2, c // 2, *size).transpose(1, 2).reshape(x.shape)

    assert f"{BEHIND} channels_last → contiguous" in find_copies(space_to_depth, IMAGES).text
    deep = torch.zeros(1, 4, 2, 4, 4).to(memory_format=torch.channels_last_3d)
    assert "the layout changed channels_last_3d → contiguous" in find_copies(volumes, deep).text


def test_a_picture_that_was_loaded_with_channels_last_is_remembered():
    loaded = torch.zeros(2, 4, 4, 8)
    assert f"{BEHIND} channels_last → contiguous" in find_copies(lambda: shuffled(loaded.permute(0, 3, 1, 2))).text


def windows(x: torch.Tensor) -> torch.Tensor:
    """Cut the pictures into windows of 2×2 pixels, the channels last by shape, as in a Swin transformer."""
    n, c, h, w = x.shape
    pixels = x.permute(0, 2, 3, 1).view(n, h // 2, 2, w // 2, 2, c)
    return pixels.permute(0, 1, 3, 2, 4, 5).reshape(-1, 2, 2, c)


@pytest.mark.parametrize(
    "healthy",
    [
        lambda: shuffled(IMAGES.contiguous()),
        lambda: windows(IMAGES),
        lambda: IMAGES.permute(0, 2, 3, 1).contiguous(),
        lambda: IMAGES.view(2, 2, 4, 4, 4).transpose(1, 2).reshape(2, -1),
        lambda: IMAGES.flatten(2).transpose(1, 2).reshape(2, 4, 4, 8),
        lambda: IMAGES.clone(),
    ],
)
def test_where_no_format_is_lost_none_is_named(healthy):
    assert "through views" not in find_copies(healthy).text
