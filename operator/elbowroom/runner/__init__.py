"""The process of a VM pod: it runs QEMU, and moves and resizes its guest when the operator says so.

parent.py       the pod's first process: keeps the agent running, so that its death is not the guest's
agent.py        the agent's life: start, take over, stop
config.py       what a user writes, checked
command.py      from configuration and shape to QEMU's arguments
process.py      QEMU as a process
monitor.py      QMP: commands, and events as they come
machine.py      one guest: who runs it, what it has, what happened to it
calls.py        every call about it, decided one at a time
outgoing.py     a move away, up to its commit point and beyond
pacing.py       pure: how a transfer is kept short of the switch-over, and when it is at its brink
hotplug.py      grow and shrink
record.py       what must survive the agent
messages.py     the words of the API, for both of its sides
service.py      HTTPS with mutual TLS, and the probes
tls.py          identities and contexts
"""
