"""An S3 server of its own process that keeps everything in memory: ``s3_server BUCKET``. Prints its URL."""

import logging
import sys
import threading
import urllib.request

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class KeepAlive(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"


logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
application = DomainDispatcherApplication(create_backend_app)
server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=KeepAlive)
serving = threading.Thread(target=server.serve_forever, daemon=True)
serving.start()
url = f"http://127.0.0.1:{server.server_port}"
urllib.request.urlopen(urllib.request.Request(f"{url}/{sys.argv[1]}", method="PUT")).close()
print(url, flush=True)
serving.join()
