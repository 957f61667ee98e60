"""The way from kernel to page: messages leave at once, by a class that Jupyter Server takes by a setting."""

from __future__ import annotations

from types import SimpleNamespace

from jupyter_server.serverapp import ServerApp
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

from tools.connection import SETTING, PromptConnection


class Connection(PromptConnection):
    """A connection whose handler only notes what is set."""

    websocket_handler = None

    def __init__(self, handler):
        self.websocket_handler = handler


def test_every_kernel_connection_sends_small_messages_at_once(monkeypatch) -> None:
    delays, connected = [], []
    monkeypatch.setattr(ZMQChannelsWebsocketConnection, "connect", lambda self: connected.append(list(delays)))
    Connection(SimpleNamespace(set_nodelay=delays.append)).connect()
    assert connected == [[True]]


def test_the_server_takes_the_connection_by_its_setting() -> None:
    app = ServerApp()
    app.parse_command_line([f"--{name}={value}" for name, value in SETTING.items()])
    app.init_configurables()
    assert app.kernel_websocket_connection_class is PromptConnection
