package bench

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/test/harness"
)

const (
	// injecting is the namespace with the policies. apart is a namespace for whose pods no webhook is called. floor is
	// a namespace with a webhook that returns a stored response.
	injecting, apart, floor = "injecting", corev1.NamespaceNodeLease, "floor"
	// policies is the number of policies, and matching is the number of those that select the pods.
	policies, matching = 100, 3
	// rate is the number of reviews sent per second, whether or not earlier ones are answered.
	rate = 1000
	// reviews is the number of reviews.
	reviews = 20 * rate
	// creates is the number of pods that are created in each namespace.
	creates = 1000
)

// BenchmarkInjection measures `refract run --injection` on a real API server, with 100 policies in the namespace, three
// of which select the pod of 10 KB:
//
//	review  the latency of reviews over loopback TLS. 1,000 reviews per second are due, whether or not earlier ones are answered;
//	        the latency counts from that time
//	create  the creation of pods, one after the other, alternately with the webhook, without a webhook, and with a webhook that only
//	        returns the same patch: the minimum costs of any webhook with this patch
//
//	review  reviews over loopback TLS, of which 1,000 begin per second, independent of earlier ones: from the time when each is due
//	        until its answer
//	create  pods, created one after the other, in turn with the webhook, in a namespace without one, and with a webhook that only
//	        returns the same patch: the minimum costs of any webhook with this patch
func BenchmarkInjection(b *testing.B) {
	e := up(b, 1)
	member := e.Members[0]
	cfg, err := e.Config(member)
	if err != nil {
		b.Fatal(err)
	}
	c := &consumers{e: e, member: member, clients: kubernetes.NewForConfigOrDie(cfg)}
	c.start(b)
	c.prepare(b)
	for b.Loop() {
		b.ReportMetric(0, "ns/op") // The metric ns/op would cover the whole benchmark.
		c.review(b)
		c.create(b)
	}
}

// consumers is a cluster with pods that consume services.
type consumers struct {
	e       *harness.Env
	member  string
	clients *kubernetes.Clientset
	url     string
}

// start starts the webhook, and stops it at the end of the benchmark.
func (c *consumers) start(b *testing.B) {
	b.Helper()
	ports, err := harness.FreePorts(1)
	if err != nil {
		b.Fatal(err)
	}
	address := ports[0]
	c.url = "https://" + address
	log, err := os.Create(filepath.Join(b.TempDir(), "injection.log"))
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(program(b, c.e), "run", "--injection", "--kubeconfig", c.e.Kubeconfig(c.member),
		"--webhook-url", c.url, "--webhook-bind-address", address, "--metrics-bind-address", "0", "--health-probe-bind-address", "0")
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // The signal ends the process, so an error is expected.
		if b.Failed() {
			text, _ := os.ReadFile(log.Name())
			b.Logf("%s", text)
		}
		_ = log.Close()
	})
}

// prepare creates the policies, and waits until pods are injected.
func (c *consumers) prepare(b *testing.B) {
	b.Helper()
	if _, err := c.e.Kubectl(c.member, "", "wait", "--for=create", "validatingwebhookconfiguration/refract-injection", "--timeout=60s"); err != nil {
		b.Fatal(err)
	}
	var text strings.Builder
	for _, ns := range []string{injecting, floor} {
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s}}\n", ns)
	}
	for _, ns := range []string{injecting, apart, floor} { // The namespaces need this ServiceAccount, and no controller creates it.
		fmt.Fprintf(&text, "---\n{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: %s}}\n", ns)
	}
	for i := range policies {
		role := fmt.Sprintf("role-%d", i)
		if i%(policies/matching) == 0 && i < policies/matching*matching {
			role = "frontend"
		}
		fmt.Fprintf(&text, `---
apiVersion: refract.dev/v1beta1
kind: ServiceInjectionPolicy
metadata: {name: service-%[1]d, namespace: %[2]s}
spec:
  service: service-%[1]d
  selector: {matchLabels: {role: %[3]s}}
  env: [{name: SERVICE_%[1]d_PORT, value: 6379}, {name: SERVICE_%[1]d_HOST, value: service-%[1]d}]
  volumes: [{name: cache-%[1]d, emptyDir: {}}]
  volumeMounts: [{name: cache-%[1]d, mountPath: /cache-%[1]d}]
`, i, injecting, role)
	}
	if _, err := c.e.Kubectl(c.member, text.String(), "apply", "-f", "-"); err != nil {
		b.Fatal(err)
	}
	await(b, func() bool {
		p := c.pod(injecting, "probe")
		got, err := c.clients.CoreV1().Pods(injecting).Create(b.Context(), p, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(got.Spec.Volumes) >= matching && strings.Count(fmt.Sprint(got.Annotations), "service-") >= matching
	})
}

// pod returns a pod of 10 KB.
func (c *consumers) pod(ns, name string) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns, Labels: map[string]string{"app": "website", "role": "frontend"}},
	}
	for i := range 4 {
		container := corev1.Container{Name: fmt.Sprintf("website-%d", i), Image: "registry.example/ecorp/website:1.27.3"}
		for j := range 30 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("WEBSITE_SETTING_%d", j), Value: strings.Repeat("value ", 5)})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	return p
}

// body returns a review of the creation of a pod.
func (c *consumers) body(b *testing.B) []byte {
	b.Helper()
	pod, err := json.Marshal(c.pod(injecting, "reviewed"))
	if err != nil {
		b.Fatal(err)
	}
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "705ab4f5-6393-11e8-b7cc-42010a800002", Operation: admissionv1.Create, Namespace: injecting, Name: "reviewed",
			Kind:     metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			Object:   runtime.RawExtension{Raw: pod},
		},
	})
	if err != nil {
		b.Fatal(err)
	}
	return body
}

// review sends reviews at a fixed rate, without waiting for answers, and reports the times until the answers.
func (c *consumers) review(b *testing.B) {
	b.Helper()
	body := c.body(b)
	client := c.trusting(b)
	for range 200 { // A warm-up of connections and caches.
		if _, err := ask(client, c.url+"/inject/pods", body); err != nil {
			b.Fatal(err)
		}
	}
	took := make([]time.Duration, reviews)
	failed := make([]error, reviews)
	var all sync.WaitGroup
	began := time.Now()
	for i := range reviews {
		due := began.Add(time.Duration(i) * time.Second / rate)
		select {
		case <-time.After(time.Until(due)):
		case <-b.Context().Done():
			b.Fatal(b.Context().Err())
		}
		all.Go(func() {
			_, failed[i] = ask(client, c.url+"/inject/pods", body)
			took[i] = time.Since(due)
		})
	}
	all.Wait()
	for i, err := range failed {
		if err != nil {
			b.Errorf("review %d, %s after the first: %v", i, time.Duration(i)*time.Second/rate, err)
			break
		}
	}
	b.Logf("%d reviews of %d bytes, %d begun a second:\n%s", reviews, len(body), rate, histogram(took))
	for _, q := range []float64{50, 99, 99.9} {
		b.ReportMetric(milliseconds(quantile(took, q)), fmt.Sprintf("review-p%v-ms", q))
	}
}

// trusting returns a client that trusts the CA bundle of the webhook configuration.
func (c *consumers) trusting(b *testing.B) *http.Client {
	b.Helper()
	text, err := c.e.Kubectl(c.member, "", "get", "mutatingwebhookconfiguration", "refract-injection", "-o", "json")
	if err != nil {
		b.Fatal(err)
	}
	registered := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := json.Unmarshal([]byte(text), registered); err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(registered.Webhooks[0].ClientConfig.CABundle)
	// API servers use HTTP/2 for webhooks, too.
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}}
}

// ask sends a review, and returns the answer, or an error unless the answer has a patch.
func ask(client *http.Client, url string, body []byte) ([]byte, error) {
	resp, err := client.Post(url, "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK || !bytes.Contains(answer, []byte(`"patch":`)):
		return nil, fmt.Errorf("status %s, and no patch: %s", resp.Status, answer)
	default:
		return answer, nil
	}
}

// uid matches the UID of a review.
var uid = regexp.MustCompile(`"uid":"([-0-9a-f]{36})"`)

// serveFloor registers a webhook for the pods of namespace floor. The webhook returns Refract's response to an equal
// pod, which serveFloor has requested and stored.
func (c *consumers) serveFloor(b *testing.B) {
	b.Helper()
	asked := c.body(b)
	known, err := ask(c.trusting(b), c.url+"/inject/pods", asked)
	if err != nil {
		b.Fatal(err)
	}
	before, after, _ := bytes.Cut(known, uid.FindSubmatch(asked)[1])
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		found := uid.FindSubmatch(body)
		if err != nil || found == nil {
			return
		}
		answer := slices.Concat(before, found[1], after)
		if bytes.Contains(body, []byte(refractv1beta1.InjectionAnnotation)) { // The API server calls the webhook again after another webhook.
			answer = fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, found[1])
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer) // An error means that the client has disconnected.
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	b.Cleanup(server.Close)
	trusted := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	_, err = c.clients.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(b.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: floor},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    "floor.bench.refract.dev",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: trusted},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			ReinvocationPolicy:      new(admissionregistrationv1.IfNeededReinvocationPolicy),
			AdmissionReviewVersions: []string{"v1"},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: floor}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	await(b, func() bool {
		got, err := c.clients.CoreV1().Pods(floor).Create(b.Context(), c.pod(floor, "probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && len(got.Spec.Volumes) >= matching
	})
}

// create creates pods in the three namespaces in turn, and reports the time that the webhooks add.
func (c *consumers) create(b *testing.B) {
	b.Helper()
	c.serveFloor(b)
	took := map[string][]time.Duration{}
	for i := range creates {
		for _, ns := range []string{injecting, apart, floor} {
			p := c.pod(ns, fmt.Sprintf("pod-%d", i))
			began := time.Now()
			got, err := c.clients.CoreV1().Pods(ns).Create(b.Context(), p, metav1.CreateOptions{})
			if err != nil {
				b.Fatal(err)
			}
			took[ns] = append(took[ns], time.Since(began))
			if injected := len(got.Spec.Volumes) >= matching; injected != (ns != apart) {
				b.Fatalf("pod %s/%s has %d volumes", ns, got.Name, len(got.Spec.Volumes))
			}
		}
	}
	for _, ns := range []string{injecting, apart, floor} {
		if err := c.clients.CoreV1().Pods(ns).DeleteCollection(b.Context(), *metav1.NewDeleteOptions(0), metav1.ListOptions{}); err != nil {
			b.Fatal(err)
		}
		b.Logf("create in namespace %s:\n%s", ns, histogram(took[ns]))
	}
	without := quantile(took[apart], 50)
	b.ReportMetric(milliseconds(quantile(took[injecting], 50)-without), "create-added-p50-ms")
	b.ReportMetric(milliseconds(quantile(took[floor], 50)-without), "create-floor-added-p50-ms")
	b.ReportMetric(milliseconds(without), "create-without-p50-ms")
}

// quantile returns the value that this percentage of the values does not exceed.
func quantile(values []time.Duration, percent float64) time.Duration {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(percent/100*float64(len(sorted))))]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// histogram formats the numbers of values per interval, and the quantiles.
func histogram(values []time.Duration) string {
	var out strings.Builder
	sorted := slices.Sorted(slices.Values(values))
	at := 0
	for step := 100; at < len(sorted); step *= 10 { // Microseconds.
		for _, times := range []int{1, 2, 5} {
			from, most := at, time.Duration(step*times)*time.Microsecond
			for at < len(sorted) && sorted[at] <= most {
				at++
			}
			if at > 0 && from < len(sorted) {
				fmt.Fprintf(&out, "  ≤ %-8v %6d\n", most, at-from)
			}
		}
	}
	for _, q := range []float64{50, 90, 99, 99.9, 99.99} {
		fmt.Fprintf(&out, "  p%-7v %v\n", q, quantile(values, q).Round(time.Microsecond))
	}
	fmt.Fprintf(&out, "  max      %v", sorted[len(sorted)-1].Round(time.Microsecond))
	return out.String()
}
