"""Typical wrong answers of chapter 01, each with a pattern for the message it must get."""

WRONG = {
    "ex-write-through": [
        ("answer = [0, 1, 2, 3, 4, 5]", "b is no copy"),
        ("answer = [0, 0, 0, 3, 4, 5]", "second row"),
        ("answer = [0, 1, 0, 3, 4, 5]", "Draw six slots"),
        ("answer = {0, 1, 2}", "A set has no order"),
        ("answer = None", "None came, and a list of numbers is wanted"),
    ],
    "ex-slot": [
        (
            "def slot(index, stride, storage_offset):\n    return sum(i * s for i, s in zip(index, stride))",
            "storage offset is missing",
        ),
        (
            "def slot(index, stride, storage_offset):\n    return index[0] * stride[0] + index[1] * stride[1] + storage_offset",
            r"slot\(\(2,\), \(3,\), 1\) raised IndexError",
        ),
        (
            "def slot(index, stride, storage_offset):\n    return storage_offset + sum(index) * sum(stride)",
            "each index by its own stride",
        ),
        ("def slot(index, stride, storage_offset):\n    return [storage_offset]*2", "one whole number is wanted"),
        (
            "def slot(index, stride, storage_offset):\n    pairs = list(zip(index, stride))\n"
            "    return storage_offset + sum(i * s for i, s in {*pairs[:1], *pairs[-1:]})",
            r"slot\(\(1, 2, 3\), .* torch reads slot 23",
        ),
    ],
    "ex-same-storage": [
        ("def same_storage(a, b):\n    return a.data_ptr() == b.data_ptr()", "compare the first elements"),
        ("def same_storage(a, b):\n    return torch.equal(a, b)", "False for a tensor and its view"),
        ("def same_storage(a, b):\n    return True", "neither equal values"),
        ("def same_storage(a, b):\n    return 'yes'", "True or False is wanted"),
        (
            "def same_storage(a, b):\n    return a.untyped_storage().nbytes() == b.untyped_storage().nbytes()",
            "equal sizes",
        ),
        (
            "def same_storage(a, b):\n    root = lambda t: t if t._base is None else t._base\n    return root(a) is root(b)",
            "no _base tells that",
        ),
        (
            "def same_storage(a, b):\n    return abs(a.data_ptr() - b.data_ptr()) < a.untyped_storage().nbytes()",
            "True for a slice of one tensor and another tensor right behind it|neither equal values",
        ),
        (
            "def same_storage(a, b):\n    a.fill_(1)\n    same = bool((b == 1).all())\n    return same",
            "writes into its tensors",
        ),
    ],
    "ex-strides": [
        (
            "def new_strides(shape):\n    s = [1]\n    for n in shape[:-1]:\n        s.append(s[-1] * n)\n    return tuple(s) if shape else ()",
            "torch has",
        ),
        ("def new_strides(shape):\n    return shape", "those are the sizes"),
        ("def new_strides(shape):\n    return torch.empty(shape).stride()[::-1]", "backwards"),
        ("def new_strides(shape):\n    return set(torch.empty(shape).stride())", "A set has no order"),
    ],
    "ex-transposed": [
        (
            "def transposed(shape, stride, i, j):\n    s = list(shape)\n    s[i], s[j] = s[j], s[i]\n    return tuple(s), stride",
            "the strides stayed",
        ),
        (
            "def transposed(shape, stride, i, j):\n    t = torch.empty(shape).transpose(i, j).contiguous()\n    return tuple(t.shape), t.stride()",
            "strides of a new tensor",
        ),
        ("def transposed(shape, stride, i, j):\n    return shape[::-1], stride[::-1]", "torch has"),
        ("def transposed(shape, stride, i, j):\n    return shape + stride", "a pair is wanted"),
        (
            "def transposed(shape, stride, i, j):\n    s = list(stride)\n    s[i], s[j] = s[j], s[i]\n    return shape, tuple(s)",
            "the sizes stayed",
        ),
        (
            "def transposed(shape, stride, i, j):\n    t = torch.empty_strided(shape, stride).transpose(i, j)\n"
            "    return t.stride(), tuple(t.shape)",
            "in the wrong order",
        ),
    ],
    "ex-expand": [
        ("stride, slots = (5, 1), 15", "stride of a copy"),
        ("stride, slots = (0, 1), 3", "wrong place"),
        ("stride, slots = (1, 0), 15", "Count the slots again"),
        ("stride, slots = (3, 1), 3", "the other one keeps its stride"),
        ("stride, slots = 3, (1, 0)", "in the wrong order"),
        ("stride, slots = (1, 0), '3'", "a whole number, and not '3'"),
        ("stride, slots = (1, 0), None", "a whole number, and not None"),
    ],
    "ex-antidiagonal": [
        ("size, stride, storage_offset = (3,), (5,), 0", "main diagonal"),
        ("size, stride, storage_offset = (3,), (4,), 3", "one column"),
        ("size, stride, storage_offset = (3,), (-3,), 9", "torch.as_strided refuses this"),
        ("size, stride, storage_offset = (3,), (3,), 0", "is wanted"),
        ("size, stride, storage_offset = (3,), (3,), None", "number of slots"),
        ("size, stride, storage_offset = 'three', (3,), 3", "The size is a tuple of one number"),
        ("size, stride, storage_offset = (3,), (5,), 3", "behind the end of the storage"),
        ("size, stride, storage_offset = (30_000_000,), (0,), 3", "That reads 30,000,000 elements"),
        ("size, stride, storage_offset = (2,), (3,), 3", "the size is too small"),
        ("size, stride, storage_offset = (3,), (3,), 2**70", "behind the end of the storage"),
    ],
    "ex-channels-last": [
        ("def channels_last_strides(n, c, h, w):\n    return (c * h * w, h * w, w, 1)", "the default order"),
        ("def channels_last_strides(n, c, h, w):\n    return (h * w * c, w * c, c, 1)", "in the order N, H, W, C"),
        ("def channels_last_strides(n, c, h, w):\n    return (h * w * c, 1, h * c, c)", "torch has"),
    ],
    "ex-copies": [
        ('copying = ["b", "c", "d"]', "m is contiguous already"),
        ('copying = ["b", "d", "e"]', "e copies nothing"),
        ('copying = ["a", "b", "d"]', "copies no operand"),
        ("copying = [2, 4]", "list of letters"),
        ('copying = ["b", "f"]', "There is no 'f'"),
    ],
    "ex-viewable": [
        (
            "def is_viewable(shape, stride, new_shape):\n    return stride == torch.empty(shape).stride()",
            "says False, and view works there",
        ),
        ("def is_viewable(shape, stride, new_shape):\n    return True", "says True, and view raises there"),
        ("def is_viewable(shape, stride, new_shape):\n    return None", "True or False is wanted"),
        ("def is_viewable(shape, stride, new_shape):\n    return 2", "True or False is wanted"),
    ],
    "ex-lost": [
        ("def clip_rows(rows, chosen):\n    rows[chosen].clamp_(min=0)", "rows has not changed"),
        ("def clip_rows(rows, chosen):\n    return rows[chosen].clamp(min=0)", "returns a new tensor"),
        ("def clip_rows(rows, chosen):\n    rows.clamp_(min=0)", "All rows were clipped"),
        ("def clip_rows(rows, chosen):\n    rows[chosen] = 0", "is wanted"),
        ("def clip_rows(rows, chosen):\n    rows[::2].clamp_(min=0)", r"chosen = \[False, True, False\]"),
        ("def clip_rows(rows, chosen):\n    pass", "nothing was written"),
        (
            "def clip_rows(rows, chosen):\n    rows.data = rows.clone()\n    rows[chosen] = rows[chosen].clamp(min=0)",
            "rows has a new storage",
        ),
        (
            "def clip_rows(rows, chosen):\n    rows[chosen] = rows[chosen].clamp(min=0)\n    chosen.zero_()",
            "changes chosen",
        ),
        ("def clip_rows(rows, chosen):\n    rows[chosen].clamp_(min=0)\n    return rows", "or it went into a copy"),
        (
            "def clip_rows(rows, chosen):\n    rows.untyped_storage().resize_(0)",
            "its storage is gone",
        ),
    ],
    "ex-flatten": [
        ("def flatten_pixels(images):\n    return images.flatten(1)", "channel by channel"),
        ("def flatten_pixels(images):\n    return images.permute(0, 2, 3, 1).flatten(1).clone()", "they were copied"),
        ("def flatten_pixels(images):\n    return images.view(images.size(0), -1)", "raised RuntimeError"),
        (
            "def flatten_pixels(images):\n    return images.permute(0, 3, 2, 1).reshape(images.size(0), -1)",
            "another order",
        ),
        ("def flatten_pixels(images):\n    return images.permute(0, 2, 3, 1)", "The shape is"),
        ("def flatten_pixels(images):\n    return None", "a tensor is wanted"),
        (
            "def flatten_pixels(images):\n    return images.permute(0, 2, 3, 1).reshape(len(images), -1).view(torch.int32)",
            "The dtype is int32",
        ),
        ("def flatten_pixels(images):\n    images.zero_()\n    return images.flatten(1)", "writes into images"),
        ("def flatten_pixels(images):\n    return images.permute(0, 2, 3, 1).flatten(1).to('meta')", "another order"),
        ("def flatten_pixels(images):\n    return images.permute(0, 2, 3, 1).view(2, -1)", "one row for each image"),
        ("def flatten_pixels(images):\n    return images.permute(0, 2, 3, 1).view(2, 24)", "one row for each image"),
        (
            "def flatten_pixels(images):\n    return images.permute(0, 2, 3, 1).view(-1, 24)",
            "one row for each image|raised RuntimeError",
        ),
    ],
    "ex-overlap": [
        ('refused = ["c", "d"]', "every slot is read for its own write"),
        ('refused = ["b", "c"]', "reads the odd slots"),
        ("refused = []", "slots 2 and 3 are both"),
    ],
    "ex-holder": [
        ('guilty = "mask"', "it is expanded"),
        ('guilty = "last"', "has 16,384 bytes"),
        ("guilty = names", "A key of the dict is wanted"),
    ],
    "ex-snapshot": [
        ("def snapshot(model):\n    return dict(model.state_dict())", "shares its storage"),
        ("def snapshot(model):\n    return {n: p.clone() for n, p in model.named_parameters()}", "buffers"),
        (
            "def snapshot(model):\n    return {n: t.detach() for n, t in model.state_dict().items()}",
            "shares its storage",
        ),
        (
            "def snapshot(model):\n    return {n: t.tolist() for n, t in model.state_dict().items()}",
            "a tensor is wanted",
        ),
        (
            "def snapshot(model):\n    return {n: torch.empty_like(t).fill_(9) for n, t in model.state_dict().items()}",
            "does not have the numbers",
        ),
        (
            "def snapshot(model):\n    return {n: t.double() for n, t in model.state_dict().items()}",
            "is float64 in your snapshot, and float32 in the model",
        ),
        (
            "def snapshot(model):\n    return {n: t.clone() for n, t in model.eval().state_dict().items()}",
            "it is in eval mode after it",
        ),
        (
            "def snapshot(model):\n    model.requires_grad_(False)\n"
            "    return {n: t.clone() for n, t in model.state_dict().items()}",
            "no longer requires a gradient",
        ),
        (
            "def snapshot(model):\n    return {n: t.clone()[None] for n, t in model.state_dict().items()}",
            r"has shape \(1, 3, 2\) in your snapshot, and \(3, 2\) in the model",
        ),
        (
            "def snapshot(model):\n    return {n: t.clone().to_sparse() for n, t in model.state_dict().items()}",
            "no plain tensor with numbers in slots",
        ),
        (
            "def snapshot(model):\n    kept = {n: t.clone() for n, t in model.state_dict().items()}\n    model.double()\n    return kept",
            "changes the model: '0.weight' is different",
        ),
        (
            "def snapshot(model):\n    kept = {n: t.clone() for n, t in model.state_dict().items()}\n"
            "    model[0] = torch.nn.Identity()\n    return kept",
            "changes the model: '0.weight' is different",
        ),
    ],
    "ex-wasteful": [
        ("def wasteful(tensors):\n    return {n for n, t in tensors.items() if not t.is_contiguous()}", "is missing"),
        (
            "def wasteful(tensors):\n    return {n for n, t in tensors.items() if t.untyped_storage().nbytes() != t.nbytes}",
            "more than twice its size|nothing is wasted",
        ),
        (
            "def wasteful(tensors):\n    return {n for n, t in tensors.items() if t.untyped_storage().nbytes() > t.nbytes}",
            "'exactly_half' does not hold",
        ),
        (
            "def wasteful(tensors):\n    return {t for t in tensors.values() if t.untyped_storage().nbytes() > 2 * t.nbytes}",
            "a set of names is wanted, which are the keys",
        ),
        ("def wasteful(tensors):\n    return 2", "a set of names is wanted"),
        (
            "def wasteful(tensors):\n    return {n for n, t in tensors.items() if t.untyped_storage().nbytes() >= 2 * t.nbytes}",
            "'exactly_half' does not hold",
        ),
        (
            "def wasteful(tensors):\n    return {n for n, t in tensors.items() if t.untyped_storage().size() > 2 * t.numel()}",
            "bytes with elements",
        ),
        (
            "def wasteful(tensors):\n    return {n for n, t in tensors.items() if t.untyped_storage().nbytes() > 2 * t.numel() * 4}",
            "4 bytes for every element",
        ),
        (
            "def wasteful(tensors):\n    return {n for n, t in tensors.items() if t.untyped_storage().nbytes() > 2 * t.numel() * 8}",
            "8 bytes for every element",
        ),
        *(
            (f"def wasteful(tensors):\n    return {{n for n, t in tensors.items() if {rule}}}", said)
            for rule, said in [
                ("t.untyped_storage().nbytes() > 2.5 * t.nbytes", "'five_of_twelve' is missing"),
                ("t.untyped_storage().nbytes() > 2 * t.numel() * 2", "2 bytes for every element"),
                ("t.untyped_storage().nbytes() > 4 * t.nbytes", "'detached_row' is missing"),
                ("t._base is not None and t._base.nbytes > 2 * t.nbytes", "'detached_row' is missing"),
                (
                    "t.untyped_storage().nbytes() - t.storage_offset() * t.element_size() > 2 * t.nbytes",
                    "'last_of_five' is missing",
                ),
                ("t.untyped_storage().nbytes() > 2 * t.nbytes and t.is_contiguous()", "'two_columns' is missing"),
            ]
        ),
        ("def wasteful(tensors):\n    tensors.clear()\n    return set()", "is missing"),
    ],
}
