package services

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"

	"elbowroom.dev/testbed/internal/network"
)

// Addresser gives the calling process's network another address.
type Addresser interface{ AddAddress(ip string) error }

// Run serves services and names until ctx ends. The API server's own address and the name server's are not its business.
func Run(ctx context.Context, client kubernetes.Interface, addresses Addresser) error {
	changes := make(chan struct{}, 1)
	changed := func() {
		select {
		case changes <- struct{}{}:
		default: // one is waiting already, and will see this change, too
		}
	}
	known, err := watch(ctx, client, changed)
	if err != nil {
		return err
	}
	if err := addresses.AddAddress(network.DNS); err != nil {
		return err
	}
	if err := serveNames(ctx, known); err != nil {
		return err
	}
	p := &proxy{directory: known, addresses: addresses, listeners: map[string]openService{}}
	go p.follow(ctx, changes)
	return nil
}

// proxy listens wherever a service is to be reached. Addresses once given stay: they cost nothing.
type proxy struct {
	*directory
	addresses Addresser
	listeners map[string]openService
}

type openService struct {
	net.Listener
	behind target
}

func (p *proxy) follow(ctx context.Context, changes <-chan struct{}) {
	for {
		p.adjust()
		select {
		case <-changes:
		case <-ctx.Done():
			return
		}
	}
}

func (p *proxy) adjust() {
	wanted := p.wanted(network.APIServer, network.DNS)
	for where, listener := range p.listeners {
		if behind, keep := wanted[where]; !keep || behind != listener.behind {
			listener.Close()
			delete(p.listeners, where)
		}
	}
	for where, behind := range wanted {
		if _, open := p.listeners[where]; open {
			continue
		}
		listener, err := p.open(where)
		if err != nil {
			fmt.Fprintf(os.Stderr, "testbed: service %s/%s cannot be reached: %v\n", behind.namespace, behind.service, err)
			continue
		}
		p.listeners[where] = openService{listener, behind}
		go p.accept(listener, behind)
	}
}

func (p *proxy) open(where string) (net.Listener, error) {
	ip, _, err := net.SplitHostPort(where)
	if err != nil {
		return nil, err
	}
	if err := p.addresses.AddAddress(ip); err != nil {
		return nil, err
	}
	return net.Listen("tcp4", where)
}

func (p *proxy) accept(listener net.Listener, behind target) {
	AcceptAll(listener, func(client *net.TCPConn) { p.connect(client, behind) })
}

// connect tries the pods behind a service in random order: one may have died without anybody knowing yet.
func (p *proxy) connect(client *net.TCPConn, behind target) {
	defer client.Close()
	candidates := p.addressesOf(behind)
	rand.Shuffle(len(candidates), func(a, b int) { candidates[a], candidates[b] = candidates[b], candidates[a] })
	for _, address := range candidates {
		server, err := net.DialTimeout("tcp4", address, 2*time.Second)
		if err == nil {
			Splice(client, server.(*net.TCPConn))
			return
		}
	}
	// Nobody is there: the client sees a reset, as it would see a refusal.
	_ = client.SetLinger(0)
}

// AcceptAll hands every connection to its own goroutine until the listener is closed. A passing shortage, such as of
// descriptors, only makes the next client wait.
func AcceptAll(listener net.Listener, handle func(*net.TCPConn)) {
	for {
		client, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(50 * time.Millisecond)
		default:
			go handle(client.(*net.TCPConn))
		}
	}
}

// Splice carries both directions of a connection, each to its own end: a client may stop sending and still listen.
func Splice(a, b *net.TCPConn) {
	defer a.Close()
	defer b.Close()
	var directions sync.WaitGroup
	for _, pair := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		directions.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].CloseWrite()
		})
	}
	directions.Wait()
}
