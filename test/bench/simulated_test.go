package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
	"refract.dev/test/simulation"
)

// patientLease is a long lease: on one machine, hub and members may use all processors for seconds, and the controllers
// should still keep their lease.
const patientLease = "--lease-duration=2m"

// TestMain runs the benchmarks or, in a process that they start, the members of a simulated fleet.
func TestMain(m *testing.M) {
	if n := os.Getenv(simulateVariable); n != "" {
		if err := simulate(n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctrllog.SetLogger(logr.Discard()) // The logs of the clients are not needed.
	os.Exit(m.Run())
}

// simulate serves n members, and prints the URL of their control interface. It ends when its standard input is closed.
func simulate(n string) error {
	var members int
	if _, err := fmt.Sscan(n, &members); err != nil {
		return fmt.Errorf("%s: %w", simulateVariable, err)
	}
	f, err := simulation.Start(context.Background(), members)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(l, f.Control())
	fmt.Fprintln(os.Stdout, "http://"+l.Addr().String())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return f.Close()
}

// simulated is a hub with simulated members, and one more member that may join later.
type simulated struct {
	members, objects int

	program  string // refract
	hub      string // The kubeconfig.
	control  string // URL of the control interface of the simulated members.
	access   []simulation.Access
	client   client.Client
	system   *system
	meter    meter
	replicas []*controllers
	spent    float64            // Processor time of ended replicas, in seconds.
	figures  map[string]float64 // The reported figures.
}

// report reports a figure.
func (s *simulated) report(b *testing.B, value float64, unit string) {
	b.Helper()
	if s.figures == nil {
		s.figures = map[string]float64{}
	}
	s.figures[unit] = value
	b.ReportMetric(value, unit)
}

// cpu returns the processor time of all controllers, in seconds.
func (s *simulated) cpu() float64 {
	sum := s.spent
	for _, r := range s.replicas {
		sum += r.cpu()
	}
	return sum
}

// replica starts controllers, and returns the time until they were ready.
func (s *simulated) replica(b *testing.B, args ...string) time.Duration {
	b.Helper()
	r, took := startControllers(b, s.program, s.hub, args...)
	s.replicas = append(s.replicas, r)
	return took
}

// kill ends a replica like a crash.
func (s *simulated) kill(i int) {
	s.spent += s.replicas[i].cpu()
	s.replicas[i].kill()
	s.replicas = slices.Delete(s.replicas, i, i+1)
}

func (s *simulated) killAll() {
	for len(s.replicas) > 0 {
		s.kill(0)
	}
}

func (s *simulated) copies() int { return s.members * s.objects }

// ours selects all copies.
const ours = corev1alpha1.ManagedLabel + "=true"

func (s *simulated) start(b *testing.B) {
	b.Helper()
	e := harness.New(b, harness.Topology{Own: true, CRDs: true, Unaudited: true, Alike: true})
	s.hub = e.Kubeconfig("hub")
	s.program = program(b, e)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", simulateVariable, s.members+1))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	s.control = strings.TrimSpace(line)
	s.get(b, "/members", &s.access)
	if s.client, err = e.Client("hub"); err != nil {
		b.Fatal(err)
	}
	s.system = newSystem(b, s.hub)
	s.meter = newMeter(b, s.hub)
	apply(b, s.client, "testdata/policies.yaml", "testdata/gold.yaml")
}

// apply applies the objects in files.
func apply(b *testing.B, to client.Client, files ...string) {
	b.Helper()
	for _, file := range files {
		text, err := os.Open(file)
		if err != nil {
			b.Fatal(err)
		}
		defer text.Close()
		for d := yaml.NewYAMLOrJSONDecoder(text, 4096); ; {
			o := &unstructured.Unstructured{}
			if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				b.Fatal(err)
			}
			what := client.ApplyConfigurationFromUnstructured(o)
			if err := to.Apply(b.Context(), what, client.FieldOwner("bench"), client.ForceOwnership); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// join joins the simulated members to the hub, starts one replica for each list of arguments, and waits until all
// members are ready.
func (s *simulated) join(b *testing.B, replicas ...[]string) {
	b.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.SystemNamespace}}
	if err := client.IgnoreAlreadyExists(s.client.Create(b.Context(), ns)); err != nil {
		b.Fatal(err)
	}
	if err := s.system.each(s.members, func(i int) error { return s.register(b, s.access[i]) }); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	b.Cleanup(s.killAll)
	for _, args := range replicas {
		s.replica(b, args...)
	}
	s.until(b, func() bool {
		var list corev1alpha1.FederatedClusterList
		if err := s.client.List(b.Context(), &list); err != nil {
			b.Fatal(err)
		}
		ready := 0
		for i := range list.Items {
			for _, c := range list.Items[i].Status.Conditions {
				if c.Type == corev1alpha1.ClusterReady && c.Status == metav1.ConditionTrue {
					ready++
				}
			}
		}
		return ready == s.members
	})
	s.report(b, time.Since(began).Seconds(), "join-s")
	s.report(b, s.cpu(), "join-cpu-s")
}

// register creates the Secret and the FederatedCluster of a member.
func (s *simulated) register(b *testing.B, m simulation.Access) error {
	b.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: corev1alpha1.SystemNamespace, Name: m.Name, Annotations: map[string]string{refractv1alpha1.EndpointAnnotation: m.Endpoint},
		},
		Data: map[string][]byte{
			corev1alpha1.SecretCertificateAuth: m.CA, corev1alpha1.SecretServiceAccountToken: []byte(m.Token),
		},
	}
	if err := s.client.Create(b.Context(), secret); err != nil {
		return err
	}
	return s.client.Create(b.Context(), &corev1alpha1.FederatedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, Labels: map[string]string{"tier": "silver"}},
		Spec: corev1alpha1.FederatedClusterSpec{
			APIEndpoint: m.Endpoint, UseServiceAccountToken: true,
			SecretRef: corev1alpha1.LocalSecretReference{Name: m.Name},
		},
	})
}

// The controllers count as idle after (almost) no requests to members for the duration atRest. A measurement of the
// final Propagations waits longer, by saidByCluster for each cluster, because the controllers delay reports to combine
// several changes.
const (
	atRest        = 3 * time.Second
	saidByCluster = 25 * time.Millisecond
	// betweenLooks is the interval of the checks: each costs the hub some 40 ms of processor time.
	betweenLooks = time.Second
)

// settle waits until there are no more writes to hub or members, and returns the time of the last one.
func (s *simulated) settle(b *testing.B) time.Time {
	b.Helper()
	return s.quiet(b, requests.writes, 0, atRest+time.Duration(s.members)*saidByCluster)
}

// rest waits after a start until the controllers are idle, and returns the time when this began. The controllers list
// the objects of each member about once a minute, so it tolerates some fifteen lists a second with a thousand members.
func (s *simulated) rest(b *testing.B) time.Time {
	b.Helper()
	return s.quiet(b, requests.busy, float64(s.members/10), atRest)
}

// quiet waits until there were few requests to hub and members for some time, and returns the begin of that time.
func (s *simulated) quiet(b *testing.B, of func(requests) int64, few float64, during time.Duration) time.Time {
	b.Helper()
	var was float64
	since, looked := time.Now(), time.Time{}
	s.until(b, func() bool {
		if time.Since(looked) < betweenLooks {
			return false
		}
		looked = time.Now()
		is := s.reports(b) + float64(of(s.requests(b)))
		if is > was+few {
			was, since = is, looked
		}
		return looked.Sub(since) > during
	})
	return since
}

// requests counts the requests to the members, by verb.
type requests map[string]int64

func (r requests) writes() int64 { return r["apply"] + r["patch"] + r["create"] + r["delete"] }

func (r requests) all() (n int64) {
	for _, of := range r {
		n += of
	}
	return n
}

func (r requests) busy() int64 { return r.writes() + r["get"] + r["list"] + r["watch"] }

func (s *simulated) requests(b *testing.B) requests {
	b.Helper()
	var r requests
	s.get(b, "/requests", &r)
	return r
}

// reports returns the number of reports and events that the controllers have written to the hub.
func (s *simulated) reports(b *testing.B) float64 {
	b.Helper()
	return s.meter.requests(b, func(l map[string]string) bool {
		return writes("")(l) && (l["resource"] == "propagations" || l["resource"] == "clusterpropagations" || l["resource"] == "events")
	})
}

func (s *simulated) get(b *testing.B, path string, into any) {
	b.Helper()
	resp, err := http.Get(s.control + path)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		b.Fatal(err)
	}
}

// until waits until the condition holds. It polls rarely, because the check is expensive.
func (s *simulated) until(b *testing.B, holds func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), fleetLimit)
	defer cancel()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			b.Fatalf("not within %s", fleetLimit)
		}
	}
}

func withCodec(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	return cfg
}
