"""Typical wrong answers of chapter 06, each with a pattern for the message it must get."""

_HYPOT = "def remember_lengths(ctx, inputs, output):\n    ctx.save_for_backward(*inputs, output)\n\n"

WRONG = {
    "ex-entry": [
        ('work = "tanh", "tanh_out"', "The entry of tanh has no line for CPU"),
        ('work = "tanh.out", "tanh"', "its entry names another function than 'tanh'"),
        ('work = "tanh_out", "tanh.out"', "in the other order"),
        ('work = "tanh.out"', "Two names are wanted"),
    ],
    "ex-formula": [
        ('with_formula = ["a", "b", "c", "f"]', "square is composed"),
        ('with_formula = ["a", "c"]', "cumsum has a kernel of its own"),
        ('with_formula = ["a", "c", "d", "f"]', "argmax gives integers"),
    ],
    "ex-backward": [
        (
            f"{_HYPOT}def backward_of_hypot(ctx, gradient):\n    x, y, length = ctx.saved_tensors\n"
            "    return x / length, y / length",
            "The gradient that arrives is missing in that of x",
        ),
        (
            f"{_HYPOT}def backward_of_hypot(ctx, gradient):\n    x, y, length = ctx.saved_tensors\n"
            "    return gradient * y / length, gradient * x / length",
            "that of the other input",
        ),
        (
            f"{_HYPOT}def backward_of_hypot(ctx, gradient):\n    x, y, length = ctx.saved_tensors\n"
            "    return gradient * x / length",
            r"Backward returned a tensor of shape \(2,\); a gradient for x and one for y",
        ),
        (
            f"{_HYPOT}def backward_of_hypot(ctx, gradient):\n    x, y, length = ctx.saved_tensors\n"
            "    return gradient * x / length, None",
            "No gradient reached y",
        ),
        (
            f"{_HYPOT}def backward_of_hypot(ctx, gradient):\n    x, y, length = ctx.saved_tensors\n"
            "    return gradient * x, gradient * y",
            r"the gradient of x is \[0.6, 3.8462\], and yours \[3.0, 50.0\]",
        ),
    ],
    "ex-fake": [
        (
            "def fake_pairs(x):\n    return torch.empty_like(x)",
            r"gives the shape \(3, 3\), and your fake kernel \(3,\)",
        ),
        ("def fake_pairs(x):\n    return x.new_empty(3, 3)", r"For 5 numbers the kernel gives the shape \(5, 5\)"),
        (
            "def fake_pairs(x):\n    return torch.empty(len(x), len(x))",
            "The input was on meta, your result is on cpu: make it from x",
        ),
        (
            "def fake_pairs(x):\n    return torch.empty(len(x), len(x), device=x.device)",
            "For torch.float64 the kernel gives torch.float64, and your fake kernel torch.float32",
        ),
        ("def fake_pairs(x):\n    return torch.from_numpy(x.numpy()[:, None] - x.numpy())", "raised"),
        ("def fake_pairs(x):\n    return (len(x), len(x))", "a tensor is wanted"),
    ],
    "ex-alias": [
        ('broken = ["c"]', "contiguous already"),
        ('broken = ["a", "c"]', "float32 already"),
        ('broken = ["a", "b", "c", "d"]', "computed into new memory"),
        ('broken = ["a", "c", "d", "f"]', "only relu_ writes"),
    ],
    "ex-schema": [
        ('schema = "scale_(Tensor x, float factor) -> ()"', "mutated"),
        ('schema = "scale_(Tensor(a) x, float factor) -> ()"', "The ! that says 'written to' is missing"),
        ('schema = "scale_(Tensor(a!) x, float factor) -> Tensor(a!)"', "returns nothing"),
        ('schema = "scale_(Tensor(a! x, float factor) -> ()"', "torch can't read this schema"),
        ('schema = "scale_(Tensor(a!) x) -> ()"', "takes a Tensor and a float, and your schema Tensor"),
    ],
    "ex-missing": [
        ("def register(library):\n    pass", "still says: .*Could not run"),
        ('def register(library):\n    library.impl("double", lambda x: 2 * x, "CUDA")', "still says"),
        ('def register(library):\n    library.impl("double", lambda x: 2 * x, "AutogradCPU")', "in inference mode"),
        ('def register(library):\n    library.impl("double", lambda x: x, "CPU")', r"gives \[1.0, 2.0, 4.0\]"),
        ('def register(library):\n    library.define("double(Tensor x) -> Tensor")', "raised"),
    ],
    "ex-vmap": [
        (
            "def shares_rule(info, in_dims, x):\n    return torch.ops.by_hand.shares(x), in_dims[0]",
            "vmap over dimension 1 .* other numbers than a loop",
        ),
        (
            "def shares_rule(info, in_dims, x):\n    rows = x.unbind(in_dims[0])\n"
            "    return torch.stack([torch.ops.by_hand.shares(row) for row in rows]), 0",
            "ran the kernel 2 times",
        ),
        (
            "def shares_rule(info, in_dims, x):\n    return torch.ops.by_hand.shares(x.movedim(in_dims[0], 0))",
            "a pair is wanted",
        ),
        (
            "def shares_rule(info, in_dims, x):\n    return torch.ops.by_hand.shares(x.movedim(in_dims[0], 0)), in_dims[0]",
            "dimension 1",
        ),
    ],
    "ex-cpp": [
        ('clip_schema = "clip(Tensor x, double low, double? high, int times=1) -> Tensor"', "double is C\\+\\+"),
        ('clip_schema = "clip(Tensor x, float low, float high, int times=1) -> Tensor"', "Argument 3 is float"),
        ('clip_schema = "clip(Tensor x, float low, float? high, int times) -> Tensor"', "default 1"),
        ('clip_schema = "clip(Tensor x, float low, float? high, int times=1)"', "torch can't read this schema"),
        (
            'clip_schema = "clip(Tensor x, float low, float? high) -> Tensor"',
            "Your schema has 3 arguments, and the function 4",
        ),
    ],
    "ex-device": [
        ("def neg_out(x, *, out):\n    return -array_of(x)", "raised|holds"),
        ("def neg_out(x, *, out):\n    array_of(x)[...] = -array_of(x)\n    return out", "It wrote into x"),
        ("def neg_out(x, *, out):\n    out = hold(-array_of(x))\n    return out", "write -x into it"),
        ("def neg_out(x):\n    return hold(-array_of(x))", "raised"),
    ],
    "ex-fallback": [
        ('mine = ["a", "c"]', "A transpose is a view"),
        ('mine = ["a", "b", "c", "e"]', "Nobody wrote relu"),
        ('mine = ["a", "c", "d", "e"]', "nobody wrote that"),
    ],
}
