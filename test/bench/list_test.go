package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refract "refract.dev/kit/webhook/conversion"
	"refract.dev/test/harness"
)

const (
	// listed is the number of pizzas, of listedSize bytes each.
	listed, listedSize = 10_000, 10_000
	// inTurn is the number of lists with each of the webhooks.
	inTurn = 3
	// creators is the number of concurrent writers that create the pizzas.
	creators = 16
)

// BenchmarkConversionList lists 10,000 pizzas of 10 KB through a real API server in a version other than the stored
// one. The API server reads the pizzas from etcd, not from its cache, and converts each. The webhooks alternate: the
// restaurant's conversion, the ConversionPolicy, and a webhook that only changes the apiVersion.
func BenchmarkConversionList(b *testing.B) {
	l := newListing(b, up(b, 1))
	l.create(b)
	took := map[string][]time.Duration{}
	for b.Loop() {
		for range inTurn {
			for _, path := range []string{"/copy", "/pizza", "/policy"} {
				took[path] = append(took[path], l.list(b, path))
			}
		}
	}
	b.ReportMetric(0, "ns/op") // The metric ns/op would cover all webhooks.
	floor, ours, policy := halfway(took["/copy"]), halfway(took["/pizza"]), halfway(took["/policy"])
	b.ReportMetric(floor.Seconds(), "s-copy")
	b.ReportMetric(ours.Seconds(), "s-pizza")
	b.ReportMetric(policy.Seconds(), "s-policy")
	b.ReportMetric(float64(ours)/float64(floor), "times-copy")
	b.ReportMetric(float64(policy)/float64(floor), "policy-times-copy")
}

func halfway(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// listing is a cluster with pizzas.
type listing struct {
	config *rest.Config
	http   *http.Client
	client client.Client
	server *httptest.Server
	asked  atomic.Int64 // Number of reviews.
}

func newListing(b *testing.B, e *harness.Env) *listing {
	b.Helper()
	cfg, err := e.Config("hub")
	if err != nil {
		b.Fatal(err)
	}
	cfg.DisableCompression = true
	l := &listing{config: cfg}
	if l.http, err = rest.HTTPClientFor(cfg); err != nil {
		b.Fatal(err)
	}
	s := apimachineryruntime.NewScheme()
	if err := apiextensionsv1.AddToScheme(s); err != nil {
		b.Fatal(err)
	}
	if l.client, err = client.New(cfg, client.Options{Scheme: s}); err != nil {
		b.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/pizza", l.counted(refract.Handler(engine(b), refract.Options{})))
	policy := compiled(b, pizzaPolicy(b), definition(b, "pizzas.yaml"))
	mux.Handle("/policy", l.counted(refract.Handler(policy, refract.Options{})))
	mux.Handle("/copy", l.counted(http.HandlerFunc(copied)))
	l.server = httptest.NewUnstartedServer(mux)
	l.server.EnableHTTP2 = true
	l.server.StartTLS()
	b.Cleanup(l.server.Close)
	crd := l.definition("/pizza")
	if err := l.client.Create(b.Context(), crd); err != nil {
		b.Fatal(err)
	}
	return l
}

// counted counts the reviews that h answers.
func (l *listing) counted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.asked.Add(1)
		h.ServeHTTP(w, r)
	})
}

// copied is a webhook that only changes the apiVersion. It does not parse the objects; it only searches for the start
// and the end of their list.
func copied(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	objects, uid := between(body, `"objects":[`, `]},"response"`), between(body, `"uid":"`, `"`)
	if objects == nil {
		objects = between(body, `"objects":[`, `]}}`)
	}
	from, to := []byte(`"apiVersion":"`+group+`/v1alpha1"`), []byte(`"apiVersion":"`+group+`/v1beta1"`)
	if bytes.Contains(body, []byte(`"desiredAPIVersion":"`+group+`/v1alpha1"`)) {
		from, to = to, from
	}
	objects = bytes.ReplaceAll(objects, from, to)
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"%s","convertedObjects":[%s],"result":{"status":"Success"}}}`, uid, objects)
}

// between returns the data between the texts from and to. For a list of objects, it searches for the last occurrence of
// to, since the objects may contain the same text.
func between(data []byte, from, to string) []byte {
	_, rest, found := bytes.Cut(data, []byte(from))
	if !found {
		return nil
	}
	end := bytes.LastIndex(rest, []byte(to))
	if to == `"` {
		end = bytes.IndexByte(rest, '"')
	}
	if end < 0 {
		return nil
	}
	return rest[:end]
}

// definition returns the definition of the pizzas with the webhook at a path. Toppings may have any type, since one of
// the webhooks does not convert them.
func (l *listing) definition(path string) *apiextensionsv1.CustomResourceDefinition {
	url := l.server.URL + path
	version := func(name string, storage bool) apiextensionsv1.CustomResourceDefinitionVersion {
		whatever := apiextensionsv1.JSONSchemaProps{XPreserveUnknownFields: new(true)}
		text := apiextensionsv1.JSONSchemaProps{Type: "string"}
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: storage,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{
						"toppings": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &whatever}},
						"notes":    {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}},
					},
				}},
			}},
		}
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = "pizzas." + group
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: "pizzas", Singular: "pizza", Kind: "Pizza", ListKind: "PizzaList"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1alpha1", true), version("v1beta1", false)},
		Conversion: &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ConversionReviewVersions: []string{"v1"},
				ClientConfig: &apiextensionsv1.WebhookClientConfig{
					URL:      &url,
					CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: l.server.Certificate().Raw}),
				},
			},
		},
	}
	return crd
}

// create creates the pizzas.
func (l *listing) create(b *testing.B) {
	b.Helper()
	harness.Eventually(b, "pizzas are served", func(ctx context.Context) error {
		_, err := l.get(ctx, "v1alpha1", "limit=1", io.Discard)
		return err
	})
	group, ctx := errgroup.WithContext(b.Context())
	for w := range creators {
		group.Go(func() error {
			for i := w; i < listed; i += creators {
				if err := l.post(ctx, storedPizza(i, listedSize)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		b.Fatal(err)
	}
}

func (l *listing) url(version string) string {
	return l.config.Host + "/apis/" + group + "/" + version + "/namespaces/default/pizzas"
}

func (l *listing) post(ctx context.Context, pizza []byte) error {
	pizza = bytes.Replace(pizza, []byte(`"resourceVersion"`), []byte(`"ignored"`), 1)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url("v1alpha1"), bytes.NewReader(pizza))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := l.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusCreated {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}

// get copies a list of pizzas to into, and returns its size in bytes.
func (l *listing) get(ctx context.Context, version, query string, into io.Writer) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, l.url(version)+"?"+query, nil)
	if err != nil {
		return 0, err
	}
	resp, err := l.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	n, err := io.Copy(into, resp.Body)
	switch {
	case err != nil || resp.StatusCode == http.StatusOK:
		return n, err
	default:
		return n, fmt.Errorf("listing pizzas: %s", resp.Status)
	}
}

// version returns the current resource version of the list.
func (l *listing) version(b *testing.B) string {
	b.Helper()
	var text bytes.Buffer
	if _, err := l.get(b.Context(), "v1alpha1", "limit=1", &text); err != nil {
		b.Fatal(err)
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(text.Bytes(), &list); err != nil {
		b.Fatal(err)
	}
	return list.ResourceVersion
}

// list makes the API server convert with the webhook at a path, and returns the duration of a list that the API server
// reads from etcd.
//
// A change of the definition makes the API server create a new cache for the type. It then reads from etcd if the
// requested resource version is older than the cache.
func (l *listing) list(b *testing.B, path string) time.Duration {
	b.Helper()
	ctx := b.Context()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := l.client.Get(ctx, types.NamespacedName{Name: "pizzas." + group}, crd); err != nil {
		b.Fatal(err)
	}
	before := l.version(b)
	crd.Spec.Conversion = l.definition(path).Spec.Conversion
	crd.Annotations = map[string]string{"turn": path + time.Now().String()}
	if err := l.client.Update(ctx, crd); err != nil {
		b.Fatal(err)
	}
	begun := l.asked.Load()
	harness.Eventually(b, "the API server has filled its cache with pizzas from "+path, func(ctx context.Context) error {
		_, err := l.get(ctx, "v1beta1", "limit=1", io.Discard)
		if asked := l.asked.Load() - begun; err == nil && asked < listed {
			return fmt.Errorf("it has asked for %d of %d", asked, listed)
		}
		return err
	})
	var n int64
	var took time.Duration
	harness.Eventually(b, "the pizzas are listed", func(ctx context.Context) (err error) { // The API server may be busy.
		begun = l.asked.Load()
		start := time.Now()
		n, err = l.get(ctx, "v1beta1", "resourceVersionMatch=Exact&resourceVersion="+before, io.Discard)
		took = time.Since(start)
		return err
	})
	if asked := l.asked.Load() - begun; asked != listed || n < listed*listedSize {
		b.Fatalf("the list of %d bytes took %d reviews, want one for each of %d pizzas: it came from the cache", n, asked, listed)
	}
	return took
}
