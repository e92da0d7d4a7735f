// Package network is the testbed's own network: a switch that the control plane and the nodes hang on, and behind each
// node a switch for its pods. All of it lives in network namespaces of the testbed; no packet leaves the machine.
//
//	control plane (10.89.0.1, API server at 10.96.0.1)
//	      └── fabric ── node (10.89.0.11) ── pods ── pod (10.244.1.2)
package network

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// Addresses that are the same in every testbed: each has a network of its own, so they cannot collide.
const (
	Gateway     = "10.89.0.1"
	APIServer   = "10.96.0.1" // the address of the Service "kubernetes": in-cluster clients need no proxy for it
	DNS         = "10.96.0.10"
	ServiceCIDR = "10.96.0.0/16"
	PodCIDR     = "10.244.0.0/16"
	MaxNodes    = 200
)

// Fabric is the switch between the control plane and the nodes.
type Fabric struct{ bridge netlink.Link }

// NewFabric sets the calling process's network namespace up as the control plane's.
func NewFabric() (*Fabric, error) {
	handle, err := netlink.NewHandle()
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	defer handle.Close()
	if err := setUpLoopback(handle, APIServer); err != nil {
		return nil, err
	}
	bridge, err := addBridge(handle, "fabric", Gateway+"/24")
	if err != nil {
		return nil, err
	}
	return &Fabric{bridge: bridge}, forwardPackets()
}

// AddAddress gives the control plane another address, such as a service's. Nodes and pods reach it through their gateway.
func (f *Fabric) AddAddress(ip string) error {
	loopback, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(ip + "/32")
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(loopback, address); err != nil {
		return fmt.Errorf("take the address %s: %w", ip, err)
	}
	return nil
}

// Node is one node's network.
type Node struct {
	*Namespace
	IP     string
	uplink netlink.Link // the end of the node's cable that is in the fabric
	bridge netlink.Link
	subnet string
	pods   *addressPool
}

// AddNode plugs in a node; index is 1 for the first one.
func (f *Fabric) AddNode(index int) (*Node, error) {
	if index < 1 || index > MaxNodes {
		return nil, fmt.Errorf("a testbed has at most %d nodes", MaxNodes)
	}
	node := &Node{
		IP:     fmt.Sprintf("10.89.0.%d", 10+index),
		subnet: fmt.Sprintf("10.244.%d", index),
		pods:   newAddressPool(),
	}
	var err error
	if node.Namespace, err = newNamespace(); err != nil {
		return nil, err
	}
	if err := node.connect(f.bridge, index); err != nil {
		node.Close()
		return nil, fmt.Errorf("connect node %d: %w", index, err)
	}
	return node, nil
}

func (n *Node) connect(fabric netlink.Link, index int) error {
	outside, err := netlink.NewHandle()
	if err != nil {
		return err
	}
	defer outside.Close()
	inside, err := n.handle()
	if err != nil {
		return err
	}
	defer inside.Close()

	if n.uplink, err = addCable(outside, fabric, fmt.Sprintf("node%d", index), n.Namespace); err != nil {
		return err
	}
	if err := setUpLoopback(inside); err != nil {
		return err
	}
	if err := setUpEth0(inside, n.IP+"/24", Gateway); err != nil {
		return err
	}
	if n.bridge, err = addBridge(inside, "pods", n.subnet+".1/24"); err != nil {
		return err
	}
	if err := n.Do(forwardPackets); err != nil {
		return err
	}
	_, pods, err := net.ParseCIDR(n.subnet + ".0/24")
	if err != nil {
		return err
	}
	return outside.RouteReplace(&netlink.Route{Dst: pods, Gw: net.ParseIP(n.IP)})
}

// Plug and Unplug the node's cable: an unplugged node and its pods go on running, cut off from everything else.
func (n *Node) Plug() error {
	if err := netlink.LinkSetUp(n.uplink); err != nil {
		return fmt.Errorf("plug the node in: %w", err)
	}
	return nil
}

// Unplug cuts the node off.
func (n *Node) Unplug() error {
	if err := netlink.LinkSetDown(n.uplink); err != nil {
		return fmt.Errorf("unplug the node: %w", err)
	}
	return nil
}

// Pod is the network of one pod, with an address of its own.
type Pod struct {
	*Namespace
	IP   string
	free func()
}

// AddPod makes a pod's network on this node.
func (n *Node) AddPod() (*Pod, error) {
	number, err := n.pods.take()
	if err != nil {
		return nil, fmt.Errorf("no pod address is free in %s.0/24", n.subnet)
	}
	pod := &Pod{IP: fmt.Sprintf("%s.%d", n.subnet, number), free: func() { n.pods.giveBack(number) }}
	if pod.Namespace, err = newNamespace(); err != nil {
		pod.free()
		return nil, err
	}
	if err := n.connectPod(pod, number); err != nil {
		pod.Remove()
		return nil, fmt.Errorf("connect pod %s: %w", pod.IP, err)
	}
	return pod, nil
}

func (n *Node) connectPod(pod *Pod, number int) error {
	nodeSide, err := n.handle()
	if err != nil {
		return err
	}
	defer nodeSide.Close()
	podSide, err := pod.handle()
	if err != nil {
		return err
	}
	defer podSide.Close()
	name := fmt.Sprintf("pod%d", number)
	// A predecessor's cable goes away with its namespace, which the kernel clears up at its leisure.
	if stale, err := nodeSide.LinkByName(name); err == nil {
		if err := nodeSide.LinkDel(stale); err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
			return err
		}
	}
	if _, err := addCable(nodeSide, n.bridge, name, pod.Namespace); err != nil {
		return err
	}
	if err := setUpLoopback(podSide); err != nil {
		return err
	}
	return setUpEth0(podSide, pod.IP+"/24", n.subnet+".1")
}

// Remove takes the pod's network away and its address back.
func (p *Pod) Remove() {
	p.Close()
	p.free()
}

func (n *Namespace) handle() (handle *netlink.Handle, err error) {
	err = n.use(func(fd int) error {
		handle, err = netlink.NewHandleAt(netns.NsHandle(fd))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return handle, nil
}

func addBridge(handle *netlink.Handle, name, address string) (netlink.Link, error) {
	// A bridge without an address of its own takes the lowest of its ports', and changes it as they come and go: everybody
	// who has talked to it then talks to nobody, for the better part of a minute.
	hardware, err := hardwareAddress(address)
	if err != nil {
		return nil, err
	}
	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: hardware}}
	if err := handle.LinkAdd(bridge); err != nil {
		return nil, fmt.Errorf("add bridge %s: %w", name, err)
	}
	return bridge, setUp(handle, bridge, address)
}

// addCable adds a pair of interfaces: name on the bridge, and eth0 in the other namespace.
func addCable(handle *netlink.Handle, bridge netlink.Link, name string, other *Namespace) (netlink.Link, error) {
	cable := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: bridge.Attrs().Index}, PeerName: "eth0"}
	if err := other.use(func(fd int) error {
		cable.PeerNamespace = netlink.NsFd(fd)
		return handle.LinkAdd(cable)
	}); err != nil {
		return nil, fmt.Errorf("add cable %s: %w", name, err)
	}
	return cable, handle.LinkSetUp(cable)
}

func setUpEth0(handle *netlink.Handle, address, gateway string) error {
	eth0, err := handle.LinkByName("eth0")
	if err != nil {
		return err
	}
	// Whoever gets this IP address next is found at once by those who knew the last one.
	hardware, err := hardwareAddress(address)
	if err != nil {
		return err
	}
	if err := handle.LinkSetHardwareAddr(eth0, hardware); err != nil {
		return err
	}
	if err := setUp(handle, eth0, address); err != nil {
		return err
	}
	return handle.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: net.ParseIP(gateway)})
}

// hardwareAddress follows from the IP address.
func hardwareAddress(cidr string) (net.HardwareAddr, error) {
	ip, _, err := net.ParseCIDR(cidr)
	if err != nil {
		return nil, err
	}
	return append(net.HardwareAddr{0x0a, 0x58}, ip.To4()...), nil
}

func setUpLoopback(handle *netlink.Handle, addresses ...string) error {
	loopback, err := handle.LinkByName("lo")
	if err != nil {
		return err
	}
	for index := range addresses {
		addresses[index] += "/32"
	}
	return setUp(handle, loopback, addresses...)
}

func setUp(handle *netlink.Handle, link netlink.Link, addresses ...string) error {
	for _, address := range addresses {
		parsed, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := handle.AddrAdd(link, parsed); err != nil {
			return fmt.Errorf("give %s to %s: %w", address, link.Attrs().Name, err)
		}
	}
	return handle.LinkSetUp(link)
}

// forwardPackets acts on the calling thread's network namespace.
func forwardPackets() error {
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}
