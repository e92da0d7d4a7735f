// Package services makes Services work inside the testbed: connections to a cluster address reach one of the ready pods
// behind it, and names such as web.shop.svc.cluster.local resolve. It stands where kube-proxy and CoreDNS stand in a
// cluster of several machines, and needs neither their packet filter nor their image. TCP only; no node ports.
package services

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

// directory knows the cluster's services and who is behind each.
type directory struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

// watch fills a directory and calls changed after every change of a service.
func watch(ctx context.Context, client kubernetes.Interface, changed func()) (*directory, error) {
	factory := informers.NewSharedInformerFactory(client, 0)
	services, endpoints := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	d := &directory{services: services.Lister(), slices: endpoints.Lister()}
	if _, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() },
	}); err != nil {
		return nil, err
	}
	endpoints.Informer() // makes the factory watch them
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	return d, ctx.Err()
}

// endpoint is one pod behind a service.
type endpoint struct {
	ip, hostname string
	ports        map[string]int32 // by name
}

// behind lists a service's endpoints that are ready, or all of them where the service wants that.
func (d *directory) behind(service *v1.Service) []endpoint {
	selector := labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service.Name})
	parts, err := d.slices.EndpointSlices(service.Namespace).List(selector)
	if err != nil {
		return nil // a lister reads memory; there is nothing that could fail
	}
	var found []endpoint
	for _, part := range parts {
		ports := map[string]int32{}
		for _, port := range part.Ports {
			if port.Name != nil && port.Port != nil {
				ports[*port.Name] = *port.Port
			}
		}
		for _, item := range part.Endpoints {
			ready := item.Conditions.Ready == nil || *item.Conditions.Ready || service.Spec.PublishNotReadyAddresses
			if part.AddressType != discovery.AddressTypeIPv4 || !ready || len(item.Addresses) == 0 {
				continue
			}
			one := endpoint{ip: item.Addresses[0], ports: ports}
			if item.Hostname != nil {
				one.hostname = *item.Hostname
			}
			found = append(found, one)
		}
	}
	return found
}

const domain = ".svc.cluster.local."

// addresses answers a name: of a service, or of one pod of a service. Found is false for a name that nobody has.
func (d *directory) addresses(name string) (ips []string, found bool) {
	base, isOurs := strings.CutSuffix(strings.ToLower(name), domain)
	if !isOurs {
		return nil, false
	}
	parts := strings.Split(base, ".")
	host := ""
	if len(parts) == 3 {
		host, parts = parts[0], parts[1:]
	}
	if len(parts) != 2 {
		return nil, false
	}
	service, err := d.services.Services(parts[1]).Get(parts[0])
	if err != nil {
		return nil, false
	}
	if service.Spec.Type == v1.ServiceTypeExternalName {
		return nil, true // its name leads out of the cluster, and there is no way out
	}
	if host == "" && service.Spec.ClusterIP != v1.ClusterIPNone {
		return []string{service.Spec.ClusterIP}, true
	}
	for _, one := range d.behind(service) {
		if host == "" || one.hostname == host || strings.ReplaceAll(one.ip, ".", "-") == host {
			ips = append(ips, one.ip)
		}
	}
	return ips, host == "" || len(ips) > 0
}

// wanted lists where the cluster's services are to be reached: address and port, with the service and its port behind it.
func (d *directory) wanted(skip ...string) map[string]target {
	all, err := d.services.List(labels.Everything())
	if err != nil {
		return nil // as above
	}
	wanted := map[string]target{}
	for _, service := range all {
		ip := service.Spec.ClusterIP
		if ip == "" || ip == v1.ClusterIPNone || slices.Contains(skip, ip) {
			continue
		}
		for _, port := range service.Spec.Ports {
			if port.Protocol == v1.ProtocolTCP || port.Protocol == "" {
				wanted[fmt.Sprintf("%s:%d", ip, port.Port)] = target{service.Namespace, service.Name, port.Name}
			}
		}
	}
	return wanted
}

type target struct{ namespace, service, port string }

// addressesOf lists where a connection to the target may go.
func (d *directory) addressesOf(t target) []string {
	service, err := d.services.Services(t.namespace).Get(t.service)
	if err != nil {
		return nil
	}
	var addresses []string
	for _, one := range d.behind(service) {
		if port, found := one.ports[t.port]; found {
			addresses = append(addresses, fmt.Sprintf("%s:%d", one.ip, port))
		}
	}
	return addresses
}
