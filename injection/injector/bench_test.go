package injector

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// bigPod is a pod of 10 KB, like the pods of platform templates.
func bigPod(role string) string {
	var containers []string
	for i := range 3 {
		var env []string
		for j := range 30 {
			env = append(env, fmt.Sprintf("{name: VARIABLE_%d_%02d, value: some-value-of-a-setting-%02d.example.svc}", i, j, j))
		}
		containers = append(containers, fmt.Sprintf(`{name: c%d, image: "registry.example/team/product/component:1.2.3", command: [/bin/server, --listen=:8080],
  ports: [{containerPort: 8080, name: http, protocol: TCP}], resources: {limits: {cpu: "1", memory: 1Gi}, requests: {cpu: 100m, memory: 128Mi}},
  livenessProbe: {httpGet: {path: /healthz, port: http, scheme: HTTP}, periodSeconds: 10, timeoutSeconds: 1},
  volumeMounts: [{name: config, mountPath: /etc/config, readOnly: true}, {name: kube-api-access, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}],
  terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File, imagePullPolicy: IfNotPresent, env: [%s]}`, i, strings.Join(env, ", ")))
	}
	return fmt.Sprintf(`metadata: {generateName: web-6d4cf56db6-, labels: {app: web, role: %s, tier: frontend, pod-template-hash: 6d4cf56db6}, annotations: {note: "%s"}}
spec: {serviceAccountName: default, restartPolicy: Always, schedulerName: default-scheduler, terminationGracePeriodSeconds: 30,
  volumes: [{name: config, configMap: {name: web, defaultMode: 420}}, {name: kube-api-access, projected: {sources: [{serviceAccountToken: {path: token}}]}}],
  containers: [%s]}`, role, strings.Repeat("x", 400), strings.Join(containers, ", "))
}

// hundred returns 100 policies of one namespace; three of them select pods with the role frontend.
func hundred() []string {
	var out []string
	for i := range 100 {
		role := fmt.Sprintf("role-%d", i)
		if i%40 == 0 {
			role = "frontend"
		}
		out = append(out, fmt.Sprintf(`
metadata: {name: policy-%d, namespace: shop, uid: "%d", generation: 1}
spec:
  service: db-%d
  selector: {matchLabels: {role: %s}}
  env: [{name: DB_%d_HOST, value: db.shop.svc}, {name: DB_%d_PORT, value: "5432"}, {name: DB_%d_PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}]
  volumes: [{name: cache-%d, emptyDir: {}}]
  volumeMounts: [{name: cache-%d, mountPath: /cache/%d}]
`, i, i, i, role, i, i, i, i, i, i))
	}
	return out
}

// discard is a response writer that discards the response.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkReview measures the whole handler without the network, for a pod of 10 KB in a namespace with 100 policies.
func BenchmarkReview(b *testing.B) {
	for _, role := range []string{"frontend", "backend"} {
		b.Run(map[string]string{"frontend": "ThreeMatch", "backend": "NoMatch"}[role], func(b *testing.B) {
			h := served(b, hundred()...)
			body := (&request{pod: bigPod(role)}).body(b)
			if patch := ask(b, h, body).Patch; (patch == nil) != (role == "backend") {
				b.Fatalf("The patch is %s", patch)
			}
			request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, PodsPath, nil)
			if err != nil {
				b.Fatal(err)
			}
			reader, w := bytes.NewReader(body), &discard{http.Header{}}
			request.Body, request.ContentLength = io.NopCloser(reader), int64(len(body))
			took := make([]time.Duration, 0, b.N)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			b.ResetTimer()
			for b.Loop() {
				reader.Reset(body)
				begun := time.Now()
				h.ServeHTTP(w, request)
				took = append(took, time.Since(begun))
			}
			b.StopTimer()
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "reviews/s")
		})
	}
}
