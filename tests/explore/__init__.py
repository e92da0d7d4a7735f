"""Every interleaving of small worlds: the shipped decisions against a model of everything around them.

`model` is the world as it is: the API's objects, the kubelets' processes, the scheduler's cache, QEMU's guests. It is
written from what was measured of Kubernetes and QEMU, and knows nothing of our ledger. `steps` is all that can happen in
it. `operator` lets the shipped functions decide on views that may be old. `truths` are the invariants, computed from raw
facts. `search` visits every state.
"""
