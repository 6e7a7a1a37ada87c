"""Extensions of schemathesis: they drop the findings of exclusions.py and give each connection a source address of its
own."""

import itertools
import os
import sys

sys.path.insert(0, os.path.dirname(__file__))

import urllib3.connection
from exclusions import is_excluded

import schemathesis


@schemathesis.hook
def filter_failure(context, failure, case, response):
    return not is_excluded(failure, case, response)


@schemathesis.hook
def before_call(context, case, kwargs):
    # A watch of a path that exists never ends, so its answer would be waited for in vain.
    path = (case.query or {}).get("path")
    if case.operation.label.endswith("/files/watch") and isinstance(path, str) and path.startswith("/"):
        case.query = {**case.query, "path": f"/no/such/directory{path}"}


# The service limits password guesses per client address. Connect from a different address of 127.0.0.0/8 each time, so
# that schemathesis, and the tests after it, get the real answers and not refusals of that limit.
_clients = itertools.count(2)
_connect = urllib3.connection.connection.create_connection


def _connect_as_another_client(address, timeout=None, source_address=None, **rest):
    number = next(_clients)
    source = f"127.10.{number // 250 % 250 + 1}.{number % 250 + 1}"
    return _connect(address, timeout, source_address=(source, 0), **rest)


urllib3.connection.connection.create_connection = _connect_as_another_client
