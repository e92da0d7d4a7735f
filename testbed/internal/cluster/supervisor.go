package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"elbowroom.dev/testbed/internal/network"
	"elbowroom.dev/testbed/internal/parent"
	"elbowroom.dev/testbed/internal/procrun"
	"elbowroom.dev/testbed/internal/services"
)

// Supervisor is the first process of a testbed's namespaces; all others are its children.
type Supervisor struct {
	boot        Boot
	carry       []string
	fabric      *network.Fabric
	cgroups     *procrun.CgroupParent
	images      *procrun.Images
	credentials *credentials
	client      kubernetes.Interface
	components  map[string]*component

	mutex sync.Mutex
	nodes []*node
	ready bool

	operations sync.Mutex // one change at a time: a restart must not meet a kill
	failures   chan error
	down       chan struct{}
	endOnce    sync.Once
}

// Run is the supervisor's whole life. Its error is one sentence for whoever started the testbed.
func Run() error {
	s := &Supervisor{images: &procrun.Images{}, failures: make(chan error, 16), down: make(chan struct{})}
	if err := json.Unmarshal([]byte(os.Getenv(parent.BootVariable)), &s.boot); err != nil {
		return fmt.Errorf("%s is started by `testbed up` only: %w", parent.SuperviseCommand, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := s.prepare(); err != nil {
		return err
	}
	started := make(chan error, 1)
	go func() { started <- s.start(ctx) }()
	for {
		select {
		case err := <-started:
			if err != nil {
				return err
			}
			s.greet()
			if err := s.detach(); err != nil {
				return err
			}
			started = nil
		case err := <-s.failures:
			return err
		case <-s.down:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// fail ends the testbed with a sentence on what broke it.
func (s *Supervisor) fail(err error) {
	select {
	case s.failures <- err:
	default: // the first ones say enough
	}
}

func (s *Supervisor) prepare() (err error) {
	for image, folder := range s.boot.Images {
		if err := s.images.Map(image, folder); err != nil {
			return err
		}
	}
	if s.carry, err = prepareMachine(s.boot.Dir); err != nil {
		return err
	}
	if s.fabric, err = network.NewFabric(); err != nil {
		return err
	}
	s.cgroups = procrun.NewCgroupParent(CgroupName(s.boot.Dir))
	if s.credentials, err = newCredentials(); err != nil {
		return err
	}
	door := fmt.Sprintf("https://127.0.0.1:%d", s.boot.DoorPort)
	if err := s.credentials.kubeconfig(filepath.Join(inside, "kubeconfig"), door, s.credentials.admin); err != nil {
		return err
	}
	if s.client, err = s.newClient(); err != nil {
		return err
	}
	if s.components, err = s.newControlPlane(); err != nil {
		return err
	}
	return s.serve()
}

func (s *Supervisor) newClient() (kubernetes.Interface, error) {
	path := componentKubeconfig("supervisor")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if err := s.credentials.kubeconfig(path, apiServerURL, s.credentials.admin); err != nil {
		return nil, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 100, 100
	return kubernetes.NewForConfig(config)
}

// serve opens the door for kubectl and the control socket for the testbed's own commands.
func (s *Supervisor) serve() error {
	door, err := net.FileListener(os.NewFile(parent.DoorFD, "door"))
	if err != nil {
		return fmt.Errorf("open the door for kubectl: %w", err)
	}
	control, err := net.FileListener(os.NewFile(parent.ControlFD, "control"))
	if err != nil {
		return fmt.Errorf("open the control socket: %w", err)
	}
	go openDoor(door)
	go s.serveControl(control)
	return nil
}

// start brings the cluster up and returns when pods can be scheduled.
func (s *Supervisor) start(ctx context.Context) error {
	s.operations.Lock()
	defer s.operations.Unlock()
	say("Starting Kubernetes %s in %s", kubernetesVersion(), s.boot.Dir)
	for _, name := range []string{etcd, apiServer} {
		if err := s.startAndSay(ctx, name, s.components[name].start); err != nil {
			return err
		}
	}
	tasks := map[string]func(context.Context) error{
		controllerManager:    s.components[controllerManager].start,
		scheduler:            s.components[scheduler].start,
		"services and names": s.startServices,
		"service accounts": func(ctx context.Context) error {
			return poll(ctx, startLimit, func(ctx context.Context) error {
				_, err := s.client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
				return err
			})
		},
	}
	for number := 1; number <= s.boot.Nodes; number++ {
		name := fmt.Sprintf("node-%d", number)
		n, err := s.addNode(name, s.boot.CPU, s.boot.Memory)
		if err != nil {
			return err
		}
		tasks[name] = func(ctx context.Context) error { return s.switchOn(ctx, n) }
	}
	return s.startTogether(ctx, tasks)
}

// startServices begins to serve cluster addresses and names, and puts the name server where clients look for it.
func (s *Supervisor) startServices(ctx context.Context) error {
	service := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-dns", Namespace: metav1.NamespaceSystem},
		Spec: v1.ServiceSpec{ClusterIP: network.DNS, Ports: []v1.ServicePort{
			{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP}, {Name: "dns-tcp", Port: 53, Protocol: v1.ProtocolTCP},
		}},
	}
	if err := poll(ctx, startLimit, func(ctx context.Context) error {
		_, err := s.client.CoreV1().Services(service.Namespace).Create(ctx, service, metav1.CreateOptions{})
		return err // the namespace is made a moment after the API server is ready
	}); err != nil {
		return fmt.Errorf("services and names: %w", err)
	}
	// Its life is the supervisor's, not that of the start.
	return services.Run(context.WithoutCancel(ctx), s.client, s.fabric)
}

func (s *Supervisor) startTogether(ctx context.Context, tasks map[string]func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(tasks))
	for name, task := range tasks {
		go func() { results <- s.startAndSay(ctx, name, task) }()
	}
	for range tasks {
		if err := <-results; err != nil {
			return err
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.ready = true
	return nil
}

func (s *Supervisor) startAndSay(ctx context.Context, name string, start func(context.Context) error) error {
	begin := time.Now()
	if err := start(ctx); err != nil {
		return err
	}
	say("  %-24s ready after %4.1f s", name, time.Since(begin).Seconds())
	return nil
}

// poll asks until the answer is good, or the time is up.
func poll(ctx context.Context, limit time.Duration, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		err := attempt(ctx, ask)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", limit, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// attempt gives a single question a limit, so that one that hangs is asked again.
func attempt(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return ask(ctx)
}

func say(format string, values ...any) { fmt.Printf(format+"\n", values...) }

func (s *Supervisor) greet() {
	say("Ready after %.1f s: %d nodes with %s CPUs and %s each.", time.Since(s.boot.Started).Seconds(), s.boot.Nodes, s.boot.CPU, s.boot.Memory)
	if s.cgroups == nil {
		say("Cgroups cannot be written here: containers' sizes are recorded and reported, not enforced.")
	}
	say("%s", usage(s.boot.Dir))
}

// detach sends what the testbed says from now on to a log: whoever started it has gone, and with it the other end of its
// output. A write there would end the testbed.
func (s *Supervisor) detach() error {
	if !s.boot.Detached {
		return nil
	}
	log, err := os.OpenFile(logFile("testbed"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	return errors.Join(unix.Dup3(int(log.Fd()), 1, 0), unix.Dup3(int(log.Fd()), 2, 0))
}

// usage tells what to do with a testbed.
func usage(dir string) string {
	return fmt.Sprintf(`
  export KUBECONFIG=%s
  kubectl get nodes                 any kubectl will do; bin/kubectl is one
  testbed status --dir %s
  testbed down --dir %s             or Ctrl-C where it runs`, filepath.Join(dir, "kubeconfig"), dir, dir)
}
