"""The recorded steps of the Python client, at the server of a kubeconfig.

usage: steps.py KUBECONFIG

Prints what was sent and what came back as JSON: one list of steps. What differs from the expected ends it with
an exception.
"""

import json
import sys
import threading
import time
from urllib.parse import urlsplit

import urllib3
from kubernetes import client, config, dynamic, watch
from kubernetes.informer import SharedInformer

exchanges = []
steps = []

original_request = urllib3.PoolManager.request
original_stream = urllib3.response.HTTPResponse.stream
original_read = urllib3.response.HTTPResponse.read


def request(self, method, url, *args, **kwargs):
    """Sends, and writes down what is sent."""
    parts = urlsplit(url)
    fields = kwargs.get("fields")
    entry = {
        "method": method,
        "path": parts.path + ("?" + parts.query if parts.query else ""),
        "body": "",
    }
    assert not fields, fields
    exchanges.append(entry)
    response = original_request(self, method, url, *args, **kwargs)
    entry["status"] = response.status
    entry["type"] = response.headers.get("content-type", "")
    entry["warning"] = response.headers.get("warning", "")
    response.entry = entry
    return response


def keep(response, data):
    entry = getattr(response, "entry", None)
    if entry is not None and data:
        entry["body"] += data.decode()


def stream(self, *args, **kwargs):
    """Reads in parts, and writes down what is read."""
    self.streams = True
    for data in original_stream(self, *args, **kwargs):
        keep(self, data)
        yield data


def read(self, *args, **kwargs):
    data = original_read(self, *args, **kwargs)
    if not getattr(self, "streams", False):
        keep(self, data)
    return data


urllib3.PoolManager.request = request
urllib3.response.HTTPResponse.stream = stream
urllib3.response.HTTPResponse.read = read


def end(name):
    """Everything since the last call was one step."""
    global exchanges
    steps.append({"step": name, "requests": exchanges})
    exchanges = []


def named(name, **fields):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), **fields)


def names(objects):
    """Without what is in every namespace here, and was in none of the recorded cluster."""
    found = [item.metadata.name for item in objects]
    return [name for name in found if name != "kube-root-ca.crt"]


def main():
    config.load_kube_config(sys.argv[1])
    core = client.CoreV1Api()
    core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="pyns")))
    end("python create namespace")
    time.sleep(0.5)
    made = core.create_namespaced_config_map("pyns", named("a", data={"x": "1"}))
    assert made.metadata.uid and made.data == {"x": "1"}, made
    end("python create configmap")
    listed = core.list_namespaced_config_map("pyns")
    assert names(listed.items) == ["a"], listed
    end("python list")
    core.create_namespaced_config_map("pyns", named("b"))
    page = core.list_namespaced_config_map("pyns", limit=1)
    assert page.metadata.remaining_item_count == 2, page
    page = core.list_namespaced_config_map("pyns", limit=1, _continue=page.metadata._continue)
    assert names(page.items) == ["b"], page
    end("python list limit/continue")
    informer(core)
    watches(core)
    discovered = dynamic.DynamicClient(client.ApiClient(), cache_file=sys.argv[1] + ".discovery")
    assert discovered.resources.get(api_version="apps/v1", kind="Deployment").name == "deployments"
    end("python dynamic client discovery")
    maps = discovered.resources.get(api_version="v1", kind="ConfigMap")
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "pyns"},
        "data": {"q": "1"},
    }
    applied = maps.server_side_apply(body=body, namespace="pyns", field_manager="py", force_conflicts=True)
    assert applied.metadata.managedFields[0].manager == "py", applied
    end("python server-side apply")
    found = core.read_namespaced_config_map("a", "pyns")
    found.data = {"z": "1"}
    assert core.replace_namespaced_config_map("a", "pyns", found).data == {"z": "1"}
    end("python replace")
    gone = core.delete_namespaced_config_map("a", "pyns")
    assert gone["status"] == "Success", gone
    end("python delete")
    core.delete_collection_namespaced_config_map("pyns")
    end("python delete collection")
    shared = SharedInformer(core.list_namespaced_config_map, namespace="pyns")
    shared.start()
    for _ in range(500):
        if len(exchanges) == 2 and "status" in exchanges[1]:
            break
        time.sleep(0.02)
    assert names(shared.cache.list()) == [], shared.cache.list()
    end("python informer class")
    shared.stop()
    core.delete_namespace("pyns")
    end("python delete namespace")
    json.dump(steps, sys.stdout)


def informer(core):
    listed = core.list_namespaced_config_map("pyns")

    def change():
        time.sleep(0.3)
        core.patch_namespaced_config_map("a", "pyns", {"data": {"y": "2"}})
        core.delete_namespaced_config_map("b", "pyns")

    changing = threading.Thread(target=change)
    changing.start()
    heard = []
    for event in watch.Watch().stream(
        core.list_namespaced_config_map,
        "pyns",
        resource_version=listed.metadata.resource_version,
        timeout_seconds=2,
        allow_watch_bookmarks=True,
    ):
        heard.append((event["type"], event["object"].metadata.name))
    changing.join()
    assert heard == [("MODIFIED", "a"), ("DELETED", "b")], heard
    end("python list then watch (informer)")


def watches(core):
    heard = []
    for event in watch.Watch().stream(
        core.list_namespaced_config_map,
        "pyns",
        send_initial_events=True,
        resource_version_match="NotOlderThan",
        allow_watch_bookmarks=True,
        timeout_seconds=1,
    ):
        heard.append(event["type"])
    assert heard == ["ADDED", "ADDED", "BOOKMARK"], heard
    end("python watch with send_initial_events")
    # What happened at first is forgotten: whoever runs this sees to it.
    print("forget", file=sys.stderr, flush=True)
    sys.stdin.readline()
    try:
        for event in watch.Watch().stream(
            core.list_namespaced_config_map, "pyns", resource_version="1", timeout_seconds=1
        ):
            raise AssertionError(event)
    except client.ApiException as error:
        assert error.status == 410, error
    end("python watch from old resourceVersion")


main()
