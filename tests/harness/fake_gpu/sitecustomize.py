"""Python imports this at start when its folder is on PYTHONPATH: torch then claims to see a GPU.

It proves the logic of the CUDA lane on a machine without a GPU. No tensor can be put on the claimed device.
"""

import importlib.abc
import importlib.machinery
import sys


class _Claim(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch as Python would, and changes three answers after it was imported."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        module.cuda.is_available = lambda: True
        module.cuda.get_device_name = lambda device=None: "Pretend GPU"
        module.version.cuda = "12.9"


sys.meta_path.insert(0, _Claim())
