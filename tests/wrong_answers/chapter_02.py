"""Typical wrong answers of chapter 02, each with a pattern for the message it must get."""

WRONG = {
    "ex-next": [
        ('nodes = ["ExpBackward0", "AccumulateGrad"]', "exp is an input of the product"),
        ('nodes = ["MulBackward0", "a"]', "nodes, not tensors"),
        ('nodes = ["AccumulateGrad", "MulBackward0"]', "from left to right"),
        ("nodes = [1, 2]", "list of two names"),
        ('nodes = ["Mul", "AccumulateGrad"]', "nodes are right. PyTorch writes MulBackward0, not 'Mul'"),
    ],
    "ex-order": [
        ('order = ["AddBackward0", "ExpBackward0", "SinBackward0", "MulBackward0"]', "sin last"),
        ('order = ["MulBackward0", "ExpBackward0", "SinBackward0", "AddBackward0"]', "order of the forward run"),
        ('order = ["SinBackward0", "AddBackward0", "ExpBackward0", "MulBackward0"]', "Which operation made z"),
        ('order = ["AddBackward0"]', "These four run"),
        ('order = ["Add", "Sin", "Exp", "Mul"]', "order is right. PyTorch writes AddBackward0"),
    ],
    "ex-power": [
        (
            "def power(x, n):\n    result = 1\n    for _ in range(n):\n        result = result * x\n    return result",
            "one product too many",
        ),
        ("def power(x, n):\n    return x**n", "has a PowBackward0"),
        ("def power(x, n):\n    return x.data**n", "has no graph"),
        (
            "def power(x, n):\n    result = x\n    for _ in range(n):\n        result = result * x\n    return result",
            "has the wrong value",
        ),
        (
            "def power(x, n):\n    result = x\n    for _ in range(n - 1):\n        result = result * x.item()\n"
            "    return result",
            "gets no gradient",
        ),
    ],
    "ex-recorded": [
        ('recorded = ["a", "b", "c", "f"]', "A comparison gives bools"),
        ('recorded = ["a", "f"]', "round gives floats"),
        ('recorded = ["a", "c", "d", "f"]', "without its history"),
    ],
    "ex-convert": [
        (
            "def make():\n    return torch.ones(3, requires_grad=True).to(torch.float64)",
            "Convert first, ask for a gradient last",
        ),
        ("def make():\n    return torch.ones(3, dtype=torch.float64)", "does not require grad"),
        ("def make():\n    return torch.ones(3, requires_grad=True)", "float64 tensor with three"),
    ],
    "ex-accumulate": [
        (
            "def accumulate(model, parts):\n    model.zero_grad()\n    for inputs, targets in parts:\n"
            "        ((model(inputs) - targets).pow(2).mean() / len(parts)).backward()",
            "the short part counts too much",
        ),
        (
            "def accumulate(model, parts):\n    total = sum(t.numel() for _, t in parts)\n    for inputs, targets in parts:\n"
            "        ((model(inputs) - targets).pow(2).sum() / total).backward()",
            "Empty them first",
        ),
        (
            "def accumulate(model, parts):\n    model.zero_grad()\n    for inputs, targets in parts:\n"
            "        (model(inputs) - targets).pow(2).mean().backward()",
            "add up to too much",
        ),
        (
            "def accumulate(model, parts):\n    model.zero_grad()\n    total = sum(t.numel() for _, t in parts)\n"
            "    for inputs, targets in parts:\n"
            "        ((model(inputs) - targets).pow(2).sum() / total).backward()\n"
            "    model.bias.grad = None",
            "gradient of model.bias is None",
        ),
        (
            "def accumulate(model, parts):\n    model.zero_grad()\n    total = sum(t.numel() for _, t in parts)\n"
            "    for inputs, targets in parts:\n"
            "        ((model(inputs) - targets).pow(2).sum() / total).backward()\n"
            "    torch.optim.SGD(model.parameters(), lr=0.1).step()",
            "changed model.weight itself",
        ),
    ],
    "ex-carried": [
        (
            "def train(cell, inputs):\n    h = torch.zeros(1, 3)\n    for x in inputs:\n        h = cell(x, h)\n"
            "        h.sum().backward()\n    return h",
            "graph of the round before",
        ),
        (
            "def train(cell, inputs):\n    for x in inputs:\n        h = cell(x, torch.zeros(1, 3))\n"
            "        h.sum().backward()\n    return h",
            "carried on from round to round",
        ),
        (
            "def train(cell, inputs):\n    h = torch.zeros(1, 3)\n    for x in inputs:\n        h = cell(x, h)\n"
            "        h.sum().backward(retain_graph=True)\n    return h",
            "stop at the h that entered",
        ),
        (
            "def train(cell, inputs):\n    h = torch.zeros(1, 3)\n    for x in inputs:\n"
            "        h = cell(x, h.detach())\n        h.sum().backward(retain_graph=True)\n    return h",
            "leave out retain_graph",
        ),
        ("def train(cell, inputs):\n    return None", "train returned None"),
    ],
    "ex-saves": [
        ('save_result = ["a", "b", "d", "f"]', "product needs its two inputs"),
        ('save_result = ["a", "f"]', "softmax is made of its result"),
        ('save_result = ["a", "c", "d", "f"]', "cos of the input"),
    ],
    "ex-gan": [
        (
            "def gan_step(g, d, d_optimizer, noise):\n    score = d(g(noise))\n"
            "    score.mean().backward(retain_graph=True)\n    d_optimizer.step()\n    (-score.mean()).backward()",
            "Score the fake again",
        ),
        (
            "def gan_step(g, d, d_optimizer, noise):\n    fake = g(noise)\n    d_optimizer.zero_grad()\n"
            "    d(fake).mean().backward(retain_graph=True)\n    d_optimizer.step()\n    (-d(fake).mean()).backward()",
            "has sent one into g",
        ),
        (
            "def gan_step(g, d, d_optimizer, noise):\n    fake = g(noise).detach()\n    d(fake).mean().backward()\n"
            "    d_optimizer.step()\n    (-d(fake).mean()).backward()",
            "may not be detached there",
        ),
        (
            "def gan_step(g, d, d_optimizer, noise):\n    fake = g(noise)\n    d_optimizer.zero_grad()\n"
            "    d(fake.detach()).mean().backward()\n    d_optimizer.step()\n    d(fake).mean().backward()",
            "the minus of",
        ),
        (
            "def gan_step(g, d, d_optimizer, noise):\n    fake = g(noise)\n    d_optimizer.zero_grad()\n"
            "    (-d(fake).mean()).backward()\n    d_optimizer.zero_grad()\n"
            "    d(fake.detach()).mean().backward()\n    d_optimizer.step()",
            "that of the old d",
        ),
    ],
    "ex-halve": [
        ("def halve(layer):\n    layer.weight *= 0.5", "leaf Variable that requires grad"),
        (
            "def halve(layer):\n    layer.weight = torch.nn.Parameter(layer.weight * 0.5)",
            "another tensor now",
        ),
        (
            "def halve(layer):\n    layer.weight.requires_grad_(False)\n    layer.weight.mul_(0.5)",
            "no leaf that requires grad",
        ),
        ("def halve(layer):\n    layer.weight.detach() * 0.5", "not halved"),
        ("def halve(layer):\n    layer.weight.data = layer.weight.data * 0.5", "not in place"),
        (
            "def halve(layer):\n    with torch.no_grad():\n        layer.weight *= 0.5\n        layer.bias *= 0.5",
            "bias has changed too",
        ),
    ],
    "ex-cut": [
        ('call = "round"', "round is recorded"),
        ('call = "detach"', "no detach in this model"),
        ('call = "sigmoid"', "sigmoid is recorded"),
        ("call = 3", "name of a call"),
    ],
    "ex-hook": [
        (
            "def watch(h, seen):\n    def hook(gradient):\n        seen.append(gradient.abs().max().item())\n"
            "        return gradient * 2\n    return h.register_hook(hook)",
            "must return None",
        ),
        (
            "def watch(h, seen):\n    return h.register_hook(lambda gradient: seen.append(gradient.max().item()))",
            "is 7",
        ),
        ("def watch(h, seen):\n    h.register_hook(lambda g: seen.append(g.abs().max().item()))", "Return the handle"),
        ("def watch(h, seen):\n    return None", "still empty"),
    ],
    "ex-softplus": [
        (
            "class Softplus(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
            "        ctx.save_for_backward(x)\n        return torch.log(1 + torch.exp(x))\n\n    @staticmethod\n"
            "    def backward(ctx, gradient):\n        (x,) = ctx.saved_tensors\n        return gradient * torch.exp(x)",
            "(?s)`x",
        ),
        (
            "class Softplus(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
            "        ctx.save_for_backward(x)\n        return torch.log(1 + torch.exp(x))\n\n    @staticmethod\n"
            "    def backward(ctx, gradient):\n        (x,) = ctx.saved_tensors\n        return torch.sigmoid(x)",
            "incoming gradient|gradient",
        ),
        (
            "class Softplus(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
            "        return torch.exp(x)\n\n    @staticmethod\n    def backward(ctx, gradient):\n        return gradient",
            "forward is not log",
        ),
        ("def Softplus(x):\n    return torch.log(1 + torch.exp(x))", "inherits from torch.autograd.Function"),
    ],
    "ex-relu": [
        ("def relu_backward(x, gradient):\n    return gradient.masked_fill(x < 0, 0)", "At 0 yours passes"),
        ("def relu_backward(x, gradient):\n    return (x > 0).to(gradient)", "gradient that arrives is missing"),
        ("def relu_backward(x, gradient):\n    gradient[x <= 0] = 0\n    return gradient", "wrote into the gradient"),
    ],
    "ex-story": [
        ("class Mended(GaussianNLL):\n    pass", "gradient of log_var is the one from the story"),
        (
            "class Mended(GaussianNLL):\n    @staticmethod\n    def backward(ctx, gradient):\n"
            "        mean, log_var, target = ctx.saved_tensors\n        error = target - mean\n"
            "        return gradient * -error / log_var.exp(), gradient * 0.5 * (1 - error**2 / log_var.exp()), None",
            "times too large",
        ),
        (
            "class Mended(GaussianNLL):\n    @staticmethod\n    def backward(ctx, gradient):\n"
            "        mean, log_var, target = ctx.saved_tensors\n        error = target - mean\n        n = mean.numel()\n"
            "        grad_mean = error / log_var.exp()\n        grad_log_var = 0.5 * (1 - error**2 / log_var.exp())\n"
            "        return gradient * grad_mean / n, gradient * grad_log_var / n, None",
            "gradient of mean has the wrong sign",
        ),
        (
            "class Mended(GaussianNLL):\n    @staticmethod\n    def backward(ctx, gradient):\n"
            "        mean, log_var, target = ctx.saved_tensors\n        error = target - mean\n        n = mean.numel()\n"
            "        return -error / log_var.exp() / n, 0.5 * (1 - error**2 / log_var.exp()) / n, None",
            "incoming gradient",
        ),
        (
            "class Mended(GaussianNLL):\n    @staticmethod\n    def backward(ctx, gradient):\n        return gradient",
            "takes 3 arguments .* but backward returned 1 value",
        ),
    ],
    "ex-verdicts": [
        ('right_one = "a"', "forgets that the sum"),
        ('right_one = "c"', "c lets an element"),
        ('right_one = ""', "One letter is wanted"),
        ('right_one = "d"', "There is no 'd'"),
    ],
    "ex-tiny": [
        ("import math\n\ndef tanh(value):\n    return Value(math.tanh(value.data))", "no parents"),
        (
            "import math\n\ndef tanh(value):\n    t = math.tanh(value.data)\n"
            '    return Value(t, [(value, 1 - t)], "Tanh")',
            "the gradient of 2",
        ),
        ("import math\n\ndef tanh(value):\n    return math.tanh(value.data)", "a Value is wanted"),
        ("tanh = math.tanh", "not a function of your own"),
        ("tanh = None", "A function"),
        (
            "def tanh(value):\n    t = torch.tanh(torch.tensor(value.data))\n"
            '    return Value(t.item(), [(value, 1 - t**2)], "Tanh")',
            "right to 7 digits only",
        ),
        (
            "def tanh(value):\n    value.data = t = math.tanh(value.data)\n"
            '    return Value(t, [(value, 1 - t**2)], "Tanh")',
            "changed the data of its input",
        ),
    ],
}
