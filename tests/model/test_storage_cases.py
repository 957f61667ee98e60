"""Faults of storage and strides that people meet, in nine kinds; each must get its sentence from a helper.

The first of every kind is the usual one, the others are the same fault in other clothes. What is asserted is
the cause with its names and numbers, never a whole sentence.
"""

from __future__ import annotations

import copy
import gc

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from helpers.model.copies import find_copies
from helpers.model.errors.explain import explain_error
from helpers.model.overlap import explain_overlap
from helpers.model.sharing import explain_storage, find_sharers
from helpers.model.writes import find_lost_writes


def says(finding, *pieces: str) -> None:
    missing = [piece for piece in pieces if piece not in str(finding)]
    assert not missing, f"{missing} not in: {finding}"


# A view that the strides do not allow


def test_flattening_a_channels_last_activation_names_the_memory_format():
    def head():
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).to(memory_format=torch.channels_last)
        features = net(torch.zeros(2, 3, 6, 6).to(memory_format=torch.channels_last))
        return features.view(features.size(0), -1)

    says(
        explain_error(head),
        "`features` has shape (2, 4, 4, 4) but strides (64, 1, 16, 4) = channels_last",
        "so `view` fails (line 4 of head()); the model did not change, its memory format did",
        "flatten",
    )


def test_view_after_permute_names_the_dimensions():
    def tokens():
        images = torch.zeros(2, 3, 4, 5).permute(0, 2, 3, 1)
        return images.view(2, 60)

    says(
        explain_error(tokens),
        "`images` has shape (2, 4, 5, 3) and strides (60, 5, 1, 20)",
        "imensions 2 and 3 cannot merge",
    )


def test_view_after_narrow_names_the_gap():
    def crop():
        wide = torch.zeros(4, 10).narrow(1, 0, 6)
        return wide.view(-1)

    says(explain_error(crop), "`wide` has shape (4, 6) and strides (10, 1)", "imensions 0 and 1 cannot merge", "10")


def test_merging_heads_after_transpose_names_the_dimensions():
    def merge():
        heads = torch.zeros(2, 4, 7, 8).transpose(1, 2)
        return heads.view(2, 7, 32)

    says(explain_error(merge), "`heads`", "strides (224, 8, 56, 1)", "imensions 2 and 3 cannot merge", "(2, 7, 32)")


def test_view_of_an_expanded_batch_names_stride_zero():
    def batch():
        rows = torch.zeros(1, 5).expand(3, 5)
        return rows.view(15)

    says(explain_error(batch), "`rows` has shape (3, 5) and strides (0, 1)", "stride 0")


# A write to a temporary


def test_chained_mask_and_slice_lose_the_write():
    def fill():
        scores = torch.zeros(4, 2)
        keep = torch.tensor([True, False, True, True])
        scores[keep][:, 0] = 1.0
        return scores

    says(
        find_lost_writes(fill),
        "`scores[keep]` is advanced indexing: it made a new storage",
        "the write `scores[keep][:, 0] = 1.0` (line 4 of fill()) went to that temporary",
        "scores was never touched (version still 0)",
    )


def test_zeroing_rows_chosen_by_a_list_is_lost():
    def drop(x, rows):
        x[rows].zero_()
        return x

    x = torch.ones(4, 3)
    says(find_lost_writes(drop, x, [0, 2]), "`x[rows]` is advanced indexing", "`x[rows].zero_()` (line 2 of drop())")
    assert x.sum() == 12


def test_clamping_what_a_mask_chose_is_lost():
    def clip(x):
        x[x > 1].clamp_(max=1)
        return x

    says(find_lost_writes(clip, torch.arange(4.0)), "`x[x > 1]`", "clamp_", "x was never touched (version still 0)")


def test_a_write_through_reshape_of_a_transposed_tensor_is_lost():
    def mark(t):
        t.reshape(-1)[0] = 9
        return t

    says(
        find_lost_writes(mark, torch.zeros(3, 4).t()),
        "`t.reshape(-1)` had to copy to a new storage, because dimensions 0 and 1 cannot merge (strides (1, 4))",
        "`t.reshape(-1)[0] = 9` (line 2 of mark())",
        "t was never touched",
    )
    contiguous = torch.zeros(3, 4)
    assert find_lost_writes(mark, contiguous).lost == ()
    assert contiguous[0, 0] == 9, "on a contiguous tensor reshape is a view, and the same line writes through"


def test_writes_to_conversions_and_selections_are_lost():
    def work(x, i):
        x.to(torch.float64).add_(1)
        x.index_select(0, i).mul_(0)
        x.gather(0, i[None]).fill_(3)
        x.take(i).neg_()
        x.masked_select(x > 0).zero_()
        x.t().contiguous()[0] = 5
        torch.tensor([1.0, 2.0])[0] = 7
        x.clone()[0] = 8

    found = find_lost_writes(work, torch.ones(2, 2), torch.tensor([0, 1]))
    assert [w.maker.name for w in found.lost] == [
        "to",
        "index_select",
        "gather",
        "take",
        "masked_select",
        "contiguous",
        "tensor",
        "clone",
    ]
    assert found.facts["version"] == 0
    says(found, "made a new storage for another dtype", "7 more lines lose a write")


# Source and target overlap


def test_shifting_a_history_by_one_names_both_slices_and_clones_the_source():
    def shift():
        history = torch.arange(10.0)
        history[1:] = history[:-1]

    says(
        explain_error(shift),
        "`history[1:]` and `history[:-1]` share one storage and overlap in 8 of 9 elements",
        "different offsets (1 and 0)",
        "Clone the source, history[:-1].clone()",
        "(line 3 of shift())",
    )


def test_an_in_place_sum_of_neighbours_overlaps():
    def smooth(x):
        x[1:] += x[:-1]

    says(
        explain_error(smooth, torch.arange(6.0)), "`x[1:]` and `x[:-1]`", "overlap in 4 of 5 elements", "x[:-1].clone()"
    )


def test_out_into_a_slice_of_the_input_overlaps():
    def scale(x):
        torch.mul(x[:4], 2.0, out=x[2:6])

    says(
        explain_error(scale, torch.arange(6.0)),
        "`x[2:6]` and `x[:4]`",
        "overlap in 2 of 4 elements",
        "offsets (2 and 0)",
    )


def test_adding_to_an_expanded_tensor_names_stride_zero():
    def bias(b):
        b.expand(3, 4).add_(1.0)

    says(
        explain_error(bias, torch.zeros(1, 4)),
        "Dimension 0 of `b.expand(3, 4)` has stride 0: its 12 elements are 4 slots",
        "more than one element of the written-to tensor refers to a single memory location",
    )


def test_making_a_matrix_symmetric_in_place_overlaps_with_different_strides():
    def symmetric(m):
        m.add_(m.t())

    says(
        explain_error(symmetric, torch.eye(3)),
        "`m` and `m.t()`",
        "overlap in 9 of 9",
        "strides ((3, 1) and (1, 3))",
        "m.t().clone()",
    )


def test_writing_windows_is_told_although_torch_is_silent():
    x = torch.zeros(8)
    windows = x.unfold(0, 4, 2)
    says(explain_overlap(windows), "Windows of `windows` overlap", "12 elements are 8 slots", "torch does not notice")


# A small tensor on a big storage


def test_a_slice_is_saved_with_its_whole_block():
    weights = torch.zeros(1_000_000)
    head = weights[:10]
    found = explain_storage(head)
    says(
        found,
        "`head` uses 40 of 4,000,000 storage bytes (storage_offset 0, 10 elements)",
        "saving or holding it keeps 100,000× its size",
        "clone() it first",
    )
    assert found.saved_nbytes == 4_000_000


def test_a_detached_row_still_keeps_the_block():
    def embed():
        table = torch.zeros(1000, 64, requires_grad=True)
        return table[7].detach()

    row = embed()
    says(explain_storage(row), "`row` uses 256 of 256,000 storage bytes (storage_offset 448, 64 elements)", "1,000×")


def test_samples_cut_from_batches_keep_every_batch():
    samples = []
    for _ in range(20):
        batch = torch.zeros(32, 100)
        samples.append(batch[0])
    says(
        explain_storage(samples),
        "The 20 tensors of `samples` use 8,000 bytes and keep 256,000 bytes alive in 20 storages, 32× as much",
        "`samples[0]` uses 400 of 12,800 storage bytes",
    )


def test_one_chunk_in_a_checkpoint_saves_all_chunks():
    qkv = torch.zeros(3 * 64, 64)
    q, _, _ = qkv.chunk(3)
    checkpoint = {"q": q, "step": 3}
    found = explain_storage(checkpoint)
    says(found, "`checkpoint['q']` uses 16,384 of 49,152 storage bytes", "3× as much")
    assert found.saved_nbytes == 49_152


def test_a_split_last_hidden_state_keeps_the_sequence():
    hidden = torch.zeros(50, 8, 16)
    last = hidden[-1]
    says(explain_storage(last), "`last` uses 512 of 25,600 storage bytes (storage_offset 6,272, 128 elements)", "50×")


# A base without a name


def test_deleting_the_base_frees_nothing():
    a = torch.zeros(1_000_000)
    b = a[:4]
    del a
    gc.collect()
    says(
        explain_storage(b),
        "`b` uses 16 of 4,000,000 storage bytes",
        "`b` is a view whose _base is a tensor that no name refers to",
        "b._base keeps that tensor and its storage alive",
        "clone()",
    )
    says(find_sharers(b), "a tensor without a name here (its base, shape (1000000,), 4,000,000 bytes)")


def test_rebinding_the_name_to_a_slice_keeps_the_old_tensor():
    x = torch.zeros(1000, 10)
    x = x[:5]
    says(explain_storage(x), "`x` uses 200 of 40,000 storage bytes", "x._base keeps that tensor")


def test_a_function_that_returns_a_view_returns_its_base_too():
    def first_token():
        logits = torch.zeros(4, 256, 100)
        return logits[:, 0]

    token = first_token()
    says(explain_storage(token), "uses 1,600 of 409,600 storage bytes", "256×", "token._base keeps that tensor")


def test_a_transposed_slice_of_a_slice_has_the_first_tensor_as_its_base():
    m = torch.zeros(100, 100)
    part = m[:10][:, :10].t()
    del m
    says(explain_storage(part), "`part` uses 400 of 40,000 storage bytes", "part._base keeps that tensor")


def test_a_base_with_a_name_is_not_called_nameless():
    m = torch.zeros(100)
    part = m[:10]
    assert explain_storage(part).facts["base_name"] == "m"
    assert "no name" not in str(explain_storage(part))


# One memory that is refilled


def test_a_refilled_buffer_is_one_piece_of_memory():
    buffer, seen = np.zeros(2, dtype=np.float32), []
    for i in range(3):
        buffer[:] = i
        seen.append(torch.as_tensor(buffer))
    found = find_sharers(seen)
    says(
        found,
        "All 3 list entries start at the same address, which belongs to NumPy array `buffer`",
        "one piece of memory that was refilled",
        "torch.tensor(buffer)",
    )
    assert len(found.together) == 3


def test_a_tensor_that_is_refilled_in_place_is_one_piece_of_memory():
    frame, frames = torch.zeros(4), []
    for i in range(5):
        frame.fill_(i)
        frames.append(frame.detach())
    says(
        find_sharers(frames),
        "All 5 list entries start at the same address, which belongs to tensor `frame`",
        "refilled",
    )


def test_a_list_times_n_is_one_tensor_object():
    states = [torch.zeros(3)] * 4
    says(find_sharers(states), "All 4 list entries are one tensor object", "one tensor stands under 4 indices")


def test_numpy_of_a_tensor_follows_it():
    weights = torch.zeros(3)
    log = {"before": weights.numpy()}
    weights.add_(1)
    assert log["before"].tolist() == [1, 1, 1]
    says(find_sharers(weights), "`log['before']` (NumPy array, shape (3,), 12 bytes)", "in-place write")


def test_contiguous_and_to_that_returned_the_same_tensor_are_no_copies():
    x = torch.zeros(3)
    backup, other = x.contiguous(), x.to(torch.float32)
    pair = [backup, other]
    says(find_sharers(pair), "Both list entries are one tensor object")
    says(find_copies(lambda: x.contiguous()), "made no hidden copy", "`x.contiguous()` returned the same tensor")


def test_rows_of_one_block_share_it():
    block = torch.zeros(3, 4)
    rows = list(block)
    says(find_sharers(rows), "All 3 list entries lie in one block of 48 bytes, which belongs to tensor `block`")


# A snapshot that follows


def test_a_state_dict_follows_every_optimizer_step():
    model = nn.Linear(1, 1)
    best = model.state_dict().copy()
    says(
        find_sharers(best),
        "`best['weight']` shares storage with `model.weight` (2 of 2 entries",
        "the snapshot follows every optimizer step",
        "copy.deepcopy(model.state_dict())",
    )
    safe = copy.deepcopy(model.state_dict())
    assert find_sharers(safe).sharers == ()


def test_the_state_dict_of_a_nested_module_follows_with_its_buffers():
    net = nn.ModuleDict({"body": nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))})
    best = net.state_dict()
    found = find_sharers(best, net)
    says(found, "`best['body.0.weight']` shares storage with `net.body[0].weight` (7 of 7 entries")
    assert "net.body[1].running_mean" in {s.name for s in found.sharers}


def test_shadow_weights_that_are_aliases_follow():
    model = nn.Linear(2, 2)
    shadow = {name: p.detach() for name, p in model.named_parameters()}
    says(
        find_sharers(shadow),
        "`shadow['weight']` shares storage with `model.weight` (2 of 2",
        "follows every optimizer step",
    )


def test_a_shallow_copy_of_a_model_is_the_same_model():
    teacher = nn.Linear(2, 2)
    student = copy.copy(teacher)
    says(find_sharers(student), "`student.weight` is the same tensor object as `teacher.weight` (2 of 2")


def test_data_kept_as_the_initial_value_follows():
    layer = nn.Linear(2, 2)
    initial = layer.weight.data
    says(
        find_sharers(initial), "`layer.weight`", "every optimizer step that writes `layer.weight` changes `initial` too"
    )


def test_a_snapshot_with_one_forgotten_clone_is_found():
    model = nn.Linear(2, 2)
    snapshot = {"weight": model.weight.detach().clone(), "bias": model.bias.detach()}
    says(find_sharers(snapshot), "`snapshot['bias']` shares storage with `model.bias` (1 of 2 entries")


# Copies that nothing in the line tells


def test_reshape_after_expand_writes_every_repetition_out():
    def repeat_kv():
        k = torch.zeros(1, 2, 8, 4)
        return k[:, :, None].expand(1, 2, 4, 8, 4).reshape(1, 8, 8, 4)

    found = find_copies(repeat_kv)
    says(
        found,
        "`reshape` after expand cloned 4× the bytes (1,024 bytes from 256) because dimension 2 has stride 0",
        "the expand saved nothing",
        "(line 3 of repeat_kv())",
        "enable_gqa=True",
    )
    assert (found.nbytes, found.copies[0].source_nbytes) == (1024, 256)


def test_contiguous_after_expand_is_told():
    found = find_copies(lambda x: x.expand(8, 16).contiguous(), torch.zeros(1, 16))
    says(found, "`contiguous` after expand cloned 8× the bytes (512 bytes from 64) because dimension 0 has stride 0")
    assert found.copies[0].why == "the strides (0, 1) became (16, 1)"
    assert found.copies[0].source_nbytes == 64


def test_flatten_of_a_broadcast_mask_is_told():
    mask = torch.ones(6, dtype=torch.bool)
    found = find_copies(lambda: mask[None].expand(5, 6).flatten())
    says(found, "`flatten` after expand cloned 5× the bytes (30 bytes from 6) because dimension 0 has stride 0")


def test_matmul_with_expanded_keys_copies_inside():
    q, k = torch.zeros(2, 4, 3, 8), torch.zeros(2, 1, 3, 8)
    found = find_copies(lambda: q @ k.expand(2, 4, 3, 8).transpose(-2, -1))
    (made,) = found.copies
    assert (made.kind, made.nbytes, made.source_nbytes) == ("inside", 768, 192)
    says(found, "768 bytes inside", "it was given (24, 0, 1, 8)")


def test_reshape_of_a_channels_last_activation_loses_the_layout():
    def split():
        a = torch.zeros(2, 4, 6, 6).to(memory_format=torch.channels_last)
        return a.reshape(2, 8, 6, 3)

    says(
        find_copies(split),
        "`reshape` copied 1,152 bytes into a new storage and the layout changed channels_last → contiguous",
        "downstream convolutions will convert again",
        "(line 3 of split())",
        "contiguous(memory_format=torch.channels_last)",
    )


def test_flatten_before_the_head_loses_channels_last():
    x = torch.zeros(2, 4, 3, 3).to(memory_format=torch.channels_last)
    found = find_copies(lambda: x.flatten(1))
    says(found, "`flatten` copied 288 bytes", "channels_last → contiguous", "nothing to convert back")
    assert "contiguous(memory_format" not in found.remedy, "a result of two dimensions has no channels_last"
    assert find_copies(lambda: x.permute(0, 2, 3, 1).flatten(1)).nbytes == 0, "the remedy copies nothing"


def test_unflatten_of_a_permuted_tensor_copies():
    x = torch.zeros(2, 3, 4)
    says(find_copies(lambda: x.permute(2, 1, 0).reshape(12, 2)), "96 bytes", "cannot merge")


def test_five_dimensional_channels_last_is_lost_too():
    x = torch.zeros(1, 2, 3, 4, 4).to(memory_format=torch.channels_last_3d)
    says(find_copies(lambda: x.reshape(1, 6, 4, 4)), "channels_last_3d → contiguous", "384 bytes")


def test_a_loop_that_converts_in_every_step_is_told():
    x = torch.zeros(10, dtype=torch.float64)

    def loop():
        return [F.relu(x.float()).sum() for _ in range(3)]

    found = find_copies(loop)
    assert [c.kind for c in found.copies] == ["conversion"] * 3
    says(
        found,
        "`x.float()` (line 2 of loop()) copied 40 bytes: float64 became float32",
        "3 copies that its lines announce, 120 bytes in all",
    )
