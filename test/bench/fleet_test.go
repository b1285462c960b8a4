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
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

const (
	// sizesVariable has the fleets of BenchmarkFleet: MEMBERSxOBJECTS, with commas.
	sizesVariable = "REFRACT_BENCH_FLEETS"
	defaultSizes  = "100x100"
	// simulateVariable makes this program the members of a fleet, so many.
	simulateVariable = "REFRACT_BENCH_SIMULATE"
)

// What a fleet may cost at most in memory of the controllers, in bytes.
const (
	goalByObject = 20_000
	goalByCopy   = 1_000
)

// patientLease lets the controllers go on where hub and members, which are on the same machine, leave them no processor for seconds.
const patientLease = "--lease-duration=2m"

// fleetLimit bounds one phase of BenchmarkFleet.
const fleetLimit = 30 * time.Minute

// TestMain runs the benchmarks or, in the process that they start for that, the
// members of a simulated fleet.
func TestMain(m *testing.M) {
	if n := os.Getenv(simulateVariable); n != "" {
		if err := simulate(n); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctrllog.SetLogger(logr.Discard()) // The clients have nothing to say.
	os.Exit(m.Run())
}

// simulate serves n members, and prints where they are controlled, until its standard input ends.
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

// BenchmarkFleet reports what simulated fleets cost: how long it takes until every
// copy is right after all objects were created, after an OverridePolicy of all of
// them was changed, and after the labels of one cluster were; how long the
// controllers take to begin again after a crash, and what they write then; and their
// memory, processor time and requests, by object and by copy. It is for -benchtime 1x;
// $REFRACT_BENCH_FLEETS says which fleets: 100x100,1000x1000 (members, objects).
func BenchmarkFleet(b *testing.B) {
	sizes := os.Getenv(sizesVariable)
	if sizes == "" {
		sizes = defaultSizes
	}
	for size := range strings.SplitSeq(sizes, ",") {
		b.Run(size, func(b *testing.B) {
			s := &simulated{}
			if _, err := fmt.Sscanf(size, "%dx%d", &s.members, &s.objects); err != nil {
				b.Fatalf("%s: want MEMBERSxOBJECTS, got %q", sizesVariable, size)
			}
			s.run(b)
		})
	}
}

// simulated is a hub with simulated members.
type simulated struct {
	members, objects int

	program string // refract
	hub     string // The kubeconfig.
	control string // URL of the simulated members' control.
	client  client.Client
	system  *system
	meter   meter
	refract *controllers
}

func (s *simulated) copies() int { return s.members * s.objects }

func (s *simulated) run(b *testing.B) {
	b.Helper()
	b.ReportMetric(0, "ns/op") // It would hold all phases.
	s.start(b)
	for b.Loop() {
		s.join(b)
		base := s.memory(b, "joined")
		s.phase(b, "first", func() { s.create(b) }, fmt.Sprintf("%s,hello=world", ours), s.copies())
		most := s.memory(b, "settled")
		copies, objects := float64(s.copies()), float64(s.objects)
		b.ReportMetric((most-base)*1e6/copies, "B/copy")
		b.ReportMetric((most-base)*1e6/(goalByObject*objects+goalByCopy*copies), "of-goal")
		s.phase(b, "policy", func() { s.changePolicy(b) }, fmt.Sprintf("%s,hello=earth", ours), s.copies())
		s.phase(b, "label", func() { s.changeLabel(b) }, fmt.Sprintf("%s,tier=gold", ours), s.objects+1)
		s.restart(b)
	}
}

// ours selects the copies.
const ours = corev1alpha1.ManagedLabel + "=true"

func (s *simulated) start(b *testing.B) {
	b.Helper()
	e := harness.New(b, harness.Topology{Own: true, CRDs: true, Unaudited: true})
	s.hub = e.Kubeconfig("hub")
	s.program = program(b, e)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", simulateVariable, s.members))
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

// join has the simulated members join the hub, starts the controllers and waits until
// all are ready.
func (s *simulated) join(b *testing.B) {
	b.Helper()
	var members []simulation.Access
	s.get(b, "/members", &members)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1alpha1.SystemNamespace}}
	if err := client.IgnoreAlreadyExists(s.client.Create(b.Context(), ns)); err != nil {
		b.Fatal(err)
	}
	err := s.system.each(len(members), func(i int) error {
		m := members[i]
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns.Name, Name: m.Name, Annotations: map[string]string{refractv1alpha1.EndpointAnnotation: m.Endpoint},
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
	})
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	s.refract, _ = startControllers(b, s.program, s.hub, samePod, patientLease)
	b.Cleanup(func() { s.refract.kill() })
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
	b.ReportMetric(time.Since(began).Seconds(), "join-s")
	b.ReportMetric(s.refract.cpu(), "join-cpu-s")
}

// phase does something and reports how long it takes until so many copies are as the
// selector says, and what it costs until the controllers are at rest.
func (s *simulated) phase(b *testing.B, name string, do func(), selector string, want int) {
	b.Helper()
	cpu, requests, reports := s.refract.cpu(), s.requests(b), s.reports(b)
	began := time.Now()
	do()
	s.until(b, func() bool {
		return s.count(b, selector) == want
	})
	took := time.Since(began)
	settled := s.settle(b)
	b.ReportMetric(took.Seconds(), name+"-s")
	b.ReportMetric(settled.Sub(began).Seconds(), name+"-settled-s")
	b.ReportMetric(s.refract.cpu()-cpu, name+"-cpu-s")
	after := s.requests(b)
	wrote := after.writes() - requests.writes()
	b.ReportMetric(float64(wrote)/float64(want), name+"-writes/copy")
	b.ReportMetric((s.reports(b)-reports)/float64(s.objects), name+"-hub-writes/object")
	b.Logf("%s: %.1f s until the last copy, %.1f s until at rest, %d writes to members", name, took.Seconds(), settled.Sub(began).Seconds(), wrote)
}

// create creates the objects, and one more that is for gold clusters.
func (s *simulated) create(b *testing.B) {
	b.Helper()
	if err := s.system.each(s.objects+1, func(i int) error {
		labels := map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "kubeadmiral.io/override-policy-name": "op"}
		if i == s.objects {
			labels["kubeadmiral.io/propagation-policy-name"] = "gold"
		}
		_, err := s.system.hub.Resource(deployments).Namespace("default").
			Create(b.Context(), s.system.object("fleet", i, labels), metav1.CreateOptions{})
		return err
	}); err != nil {
		b.Fatal(err)
	}
}

// changePolicy changes a value that all copies have.
func (s *simulated) changePolicy(b *testing.B) {
	b.Helper()
	apply(b, s.client, "testdata/policies-changed.yaml")
}

// changeLabel makes a cluster gold: it gets one object more, and the others in
// another variant.
func (s *simulated) changeLabel(b *testing.B) {
	b.Helper()
	fc := &corev1alpha1.FederatedCluster{}
	if err := s.client.Get(b.Context(), types.NamespacedName{Name: "m-0001"}, fc); err != nil {
		b.Fatal(err)
	}
	before := fc.DeepCopy()
	fc.Labels["tier"] = "gold"
	if err := s.client.Patch(b.Context(), fc, client.MergeFrom(before)); err != nil {
		b.Fatal(err)
	}
}

// restart kills the controllers and starts them again.
func (s *simulated) restart(b *testing.B) {
	b.Helper()
	s.refract.kill()
	before := s.requests(b)
	began := time.Now()
	var ready time.Duration
	s.refract, ready = startControllers(b, s.program, s.hub, samePod, patientLease)
	settled := s.settle(b)
	b.ReportMetric(ready.Seconds(), "restart-s")
	b.ReportMetric(settled.Sub(began).Seconds(), "restart-settled-s")
	b.ReportMetric(s.refract.cpu(), "restart-cpu-s")
	after := s.requests(b)
	b.ReportMetric(float64(after.writes()-before.writes()), "restart-writes")
	if n := s.count(b, ours); n != s.copies()+1 {
		b.Errorf("%d copies are there after the restart, want %d", n, s.copies()+1)
	}
	b.Logf("restart: at work after %.1f s, at rest after %.1f s, requests %v → %v", ready.Seconds(), settled.Sub(began).Seconds(), before, after)
	s.memory(b, "restarted")
}

// memory reports the memory of the controllers, in MB.
func (s *simulated) memory(b *testing.B, when string) float64 {
	b.Helper()
	now, most := s.refract.resident()
	b.ReportMetric(now, when+"-MB")
	b.ReportMetric(most, when+"-peak-MB")
	b.Logf("%s: %.0f MB, most %.0f MB, cpu %.1f s", when, now, most, s.refract.cpu())
	return now
}

// atRest is how long next to nothing must have been asked of hub and members for the
// controllers to be at rest: longer than a report waits for more to say.
const atRest = 3 * time.Second

// settle returns when the controllers have come to rest, and since when they are. Each member is looked through about once
// a minute, which of a thousand makes fifteen lists a second.
func (s *simulated) settle(b *testing.B) time.Time {
	b.Helper()
	few := float64(s.members / 10)
	var was float64
	since := time.Now()
	s.until(b, func() bool {
		is := s.reports(b) + float64(s.requests(b).busy())
		if is > was+few {
			was, since = is, time.Now()
		}
		return time.Since(since) > atRest
	})
	return since
}

// requests are those that the members have answered.
type requests map[string]int64

func (r requests) writes() int64 { return r["apply"] + r["patch"] + r["create"] + r["delete"] }

func (r requests) busy() int64 { return r.writes() + r["get"] + r["list"] + r["watch"] }

func (s *simulated) requests(b *testing.B) requests {
	b.Helper()
	var r requests
	s.get(b, "/requests", &r)
	return r
}

// reports returns how often the controllers have written to the hub.
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

// until returns when the condition holds, which is costly to look at.
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
