"""The way from a kernel to the page: every message leaves the server at once.

A kernel answers a moved slider with several small messages. The system gathers small messages: it holds
the second back until the browser has confirmed the first, and a browser takes up to 40 ms for that
(Nagle's algorithm with delayed acknowledgement, RFC 1122, 4.2.3). Switched off for this one socket, a
picture follows the slider without that wait.
"""

from __future__ import annotations

from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection

SETTING = {"ServerApp.kernel_websocket_connection_class": "tools.connection.PromptConnection"}


class PromptConnection(ZMQChannelsWebsocketConnection):
    """Jupyter Server's connection, with TCP_NODELAY."""

    def connect(self):
        self.websocket_handler.set_nodelay(True)
        return super().connect()
