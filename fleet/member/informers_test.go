package member

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// crowd is an API server with many objects of one type. It has no watch that begins with a list.
type crowd struct {
	*httptest.Server

	gvr     schema.GroupVersionResource
	objects int
	kind    string        // The kind and the version of each object, as JSON.
	body    string        // The JSON of each object after its metadata.
	begin   chan struct{} // Closed to send a round of events.
	rounds  int           // Rounds of events. Each round changes all objects.
}

// object returns an object as JSON, in a version.
func (c *crowd) object(i, version int) string {
	ns, name, uid := i%100, i, fmt.Sprintf("f2a4c9ec-3e35-4bf5-a0c4-%012x", i)
	return fmt.Sprintf(`{%s,"metadata":{"name":"application-%d","namespace":"team-%d","uid":%q,"resourceVersion":"%d",`+
		`"generation":1,"creationTimestamp":"2026-01-02T03:04:05Z","labels":{"app":"application-%d",%q:"true"},"annotations":{%q:"%032x",%q:"%s/%s/%s/team-%d/application-%d"},`+
		`"managedFields":%s}%s}`,
		c.kind, name, ns, uid, version, name, corev1alpha1.ManagedLabel, refractv1alpha1.AppliedAnnotation, i/10, refractv1alpha1.SourceAnnotation, firstUID, uid, c.gvr.GroupResource(), ns, name,
		applied, c.body)
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case q.Get("sendInitialEvents") != "":
		answer(w, http.StatusUnprocessableEntity, metav1.Status{Status: "Failure", Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid})
	case q.Get("watch") != "":
		w.(http.Flusher).Flush()
		select {
		case <-c.begin:
		case <-r.Context().Done():
			return
		}
		var text strings.Builder
		for round := range c.rounds {
			for i := range c.objects {
				fmt.Fprintf(&text, "{\"type\":\"MODIFIED\",\"object\":%s}\n", c.object(i, (round+1)*c.objects+i+1))
				if text.Len() > 1<<16 {
					_, _ = io.WriteString(w, text.String())
					text.Reset()
				}
			}
		}
		_, _ = io.WriteString(w, text.String())
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case strings.HasSuffix(r.URL.Path, "/configmaps"), strings.HasSuffix(r.URL.Path, "/deployments"):
		from, _ := strconv.Atoi(q.Get("continue"))
		to := c.objects
		if limit, _ := strconv.Atoi(q.Get("limit")); limit > 0 {
			to = min(from+limit, to)
		}
		next := ""
		if to < c.objects {
			next = strconv.Itoa(to)
		}
		fmt.Fprintf(w, `{%s,"metadata":{"resourceVersion":"%d","continue":%q},"items":[`, strings.Replace(c.kind, `",`, `List",`, 1), c.objects, next)
		for i := from; i < to; i++ {
			if i > from {
				_, _ = io.WriteString(w, ",")
			}
			_, _ = io.WriteString(w, c.object(i, i+1))
		}
		_, _ = io.WriteString(w, "]}")
	default:
		answer(w, http.StatusNotFound, metav1.Status{Status: "Failure", Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound})
	}
}

// workload is the spec and the status of a Deployment as an API server stores it.
const workload = `,"spec":{"replicas":3,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[` +
	`{"name":"web","image":"registry.example.com/shop/web:1.2.3","ports":[{"containerPort":8080,"protocol":"TCP"}],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],` +
	`"resources":{"limits":{"cpu":"1","memory":"1Gi"},"requests":{"cpu":"100m","memory":"128Mi"}},"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"},` +
	`{"name":"log","image":"registry.example.com/shop/log:1.2.3","resources":{},"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"},` +
	`{"name":"proxy","image":"registry.example.com/shop/proxy:1.2.3","resources":{},"terminationMessagePath":"/dev/termination-log","imagePullPolicy":"IfNotPresent"}],` +
	`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","securityContext":{},"schedulerName":"default-scheduler"}},` +
	`"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":"25%","maxSurge":"25%"}},"revisionHistoryLimit":10,"progressDeadlineSeconds":600},` +
	`"status":{"observedGeneration":1,"replicas":3,"updatedReplicas":3,"readyReplicas":3,"availableReplicas":3,"conditions":[` +
	`{"type":"Available","status":"True","lastUpdateTime":"2026-01-02T03:04:05Z","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"MinimumReplicasAvailable","message":"Deployment has minimum availability."},` +
	`{"type":"Progressing","status":"True","lastUpdateTime":"2026-01-02T03:04:05Z","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"NewReplicaSetAvailable","message":"ReplicaSet has successfully progressed."}]}`

// slim returns an object that has only the data that Refract keeps of a copy.
func slim(o metav1.Object, readiness string) *metav1.PartialObjectMetadata {
	kept := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: o.GetName(), Namespace: o.GetNamespace(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), Generation: o.GetGeneration(),
		DeletionTimestamp: o.GetDeletionTimestamp(), Annotations: map[string]string{},
	}}
	for _, key := range []string{refractv1alpha1.AppliedAnnotation, refractv1alpha1.SourceAnnotation} {
		kept.Annotations[key] = o.GetAnnotations()[key]
	}
	kept.Annotations["owned"] = ours(o.GetManagedFields(), nil).Hash()
	if readiness != "" {
		kept.Annotations["readiness"] = readiness
	}
	return kept
}

// BenchmarkWatch compares the copies of a member with client-go's informers. The informers use the same bounded
// transport, and their transform keeps the same data. The benchmark reports the heap of each copy. It also reports the
// processor time for each event and for each object of the list, including the time of the API server in this process.
// Drain only reads the bytes.
func BenchmarkWatch(b *testing.B) {
	const rounds = 2
	own := func(b *testing.B, cfg *rest.Config, gvr schema.GroupVersionResource, last uint64) (changed func() bool, stop func()) {
		b.Helper()
		m, err := newMember("bench", cfg, unobserved, nil, logr.Logger{})
		if err != nil {
			b.Fatal(err)
		}
		<-m.Copies.Watch(gvr)
		return func() bool { return m.Copies.watches.store(gvr.GroupResource()).newest() >= last }, m.close
	}
	theirs := func(b *testing.B, cfg *rest.Config, gvr schema.GroupVersionResource, last uint64) (changed func() bool, stop func()) {
		b.Helper()
		ctx, end := context.WithCancel(b.Context())
		web, _, err := httpClient(cfg, newLimits("bench"))
		if err != nil {
			b.Fatal(err)
		}
		var informer cache.SharedIndexInformer
		transform := func(o any) (any, error) { return slim(o.(*metav1.PartialObjectMetadata), ""), nil }
		if gvr == configMaps {
			client, err := metadata.NewForConfigAndClient(cfg, web)
			if err != nil {
				b.Fatal(err)
			}
			informer = metadatainformer.NewFilteredMetadataInformer(client, gvr, "", 0, cache.Indexers{}, nil).Informer()
		} else {
			client, err := dynamic.NewForConfigAndClient(cfg, web)
			if err != nil {
				b.Fatal(err)
			}
			informer = dynamicinformer.NewFilteredDynamicInformer(client, gvr, "", 0, cache.Indexers{}, nil).Informer()
			transform = func(o any) (any, error) {
				u := o.(*unstructured.Unstructured)
				result, err := status.Compute(u)
				if err != nil {
					return nil, err
				}
				return slim(u, result.Status.String()+" "+result.Message), nil
			}
		}
		if err := informer.SetTransform(func(o any) (any, error) {
			if kept, ok := o.(*metav1.PartialObjectMetadata); ok && kept.Annotations["owned"] != "" {
				return o, nil // client-go may call this function twice for an object.
			}
			return transform(o)
		}); err != nil {
			b.Fatal(err)
		}
		go informer.RunWithContext(ctx)
		cache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
		return func() bool { return number(informer.LastSyncResourceVersion()) >= last }, end
	}
	drain := func(b *testing.B, cfg *rest.Config, gvr schema.GroupVersionResource, _ uint64) (changed func() bool, stop func()) {
		b.Helper()
		ended := make(chan struct{})
		get := func(query string) io.ReadCloser {
			r, err := http.Get(cfg.Host + "/" + gvr.Resource + query)
			if err != nil {
				b.Fatal(err)
			}
			return r.Body
		}
		_, _ = io.Copy(io.Discard, get(""))
		events := get("?watch=true")
		go func() {
			defer close(ended)
			p, seen, all := make([]byte, 64<<10), 0, rounds*b.N
			for seen < all {
				n, err := events.Read(p)
				if seen += strings.Count(string(p[:n]), "\n"); err != nil {
					return
				}
			}
		}()
		return func() bool {
			select {
			case <-ended:
				return true
			default:
				return false
			}
		}, func() { _ = events.Close() }
	}
	for _, of := range []struct {
		name string
		gvr  schema.GroupVersionResource

		kind, body string
	}{
		{"ConfigMaps", configMaps, `"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"`, ""},
		{"Deployments", deployments, `"kind":"Deployment","apiVersion":"apps/v1"`, workload},
	} {
		for _, by := range []struct {
			name string
			run  func(*testing.B, *rest.Config, schema.GroupVersionResource, uint64) (func() bool, func())
		}{{"Drain", drain}, {"Own", own}, {"Informer", theirs}} {
			b.Run(of.name+"/"+by.name, func(b *testing.B) {
				c := &crowd{gvr: of.gvr, objects: b.N, kind: of.kind, body: of.body, begin: make(chan struct{}), rounds: rounds}
				c.Server = httptest.NewUnstartedServer(c)
				c.Config.ErrorLog = log.New(io.Discard, "", 0)
				c.Start()
				before, used := heap(), processor()
				changed, stop := by.run(b, &rest.Config{Host: c.URL, QPS: -1}, of.gvr, uint64((rounds+1)*b.N))
				b.ReportMetric(float64(processor()-used)/float64(b.N)/1000, "list-µs/object")
				b.ReportMetric(float64(heap()-before)/float64(b.N), "B/copy")
				used = processor()
				close(c.begin)
				for !changed() {
					<-time.After(time.Millisecond)
				}
				b.ReportMetric(float64(processor()-used)/float64(rounds*b.N)/1000, "watch-µs/event")
				b.ReportMetric(0, "ns/op")
				runtime.KeepAlive(changed)
				stop()
				c.CloseClientConnections()
				c.Close()
			})
		}
	}
}

// processor returns the processor time that this process has used.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
