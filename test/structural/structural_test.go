// Package structural compares the predictions of refract.dev/conversion/structural for definitions and objects with the
// behavior of a real API server.
package structural

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"refract.dev/test/harness"
)

// definitions is the path of CustomResourceDefinitions.
const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// shared is the API server of all tests.
var shared *server

// server is an API server. Tests use it without a client library, so that they can compare its responses almost byte by
// byte.
type server struct {
	env    *harness.Env
	client *http.Client
	url    string
}

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{}, func(_ context.Context, e *harness.Env) (func() error, error) {
		cfg, err := e.Config("hub")
		if err != nil {
			return nil, err
		}
		client, err := rest.HTTPClientFor(cfg)
		shared = &server{env: e, client: client, url: cfg.Host}
		return nil, err
	})
}

// answer is a response of the server.
type answer struct {
	code int
	body []byte
	// warnings are the texts of its warnings.
	warnings []string
}

// do sends a request, with a body unless it is nil, and returns the answer with any code.
func (s *server) do(ctx context.Context, method, path string, body []byte) (*answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := &answer{code: resp.StatusCode}
	if out.body, err = io.ReadAll(resp.Body); err != nil {
		return nil, err
	}
	headers, errs := utilnet.ParseWarningHeaders(resp.Header["Warning"])
	for _, h := range headers {
		out.warnings = append(out.warnings, h.Text)
	}
	return out, errors.Join(errs...)
}

// want returns an error unless the answer has this code.
func (a *answer) want(code int) error {
	if a.code != code {
		return fmt.Errorf("got %d %s, want %d", a.code, a.body, code)
	}
	return nil
}

// object decodes the body of an answer.
func (a *answer) object() (map[string]any, error) {
	var out map[string]any
	if err := utiljson.Unmarshal(a.body, &out); err != nil {
		return nil, fmt.Errorf("reading the answer %s: %w", a.body, err)
	}
	return out, nil
}

// status decodes the body of an error.
func (a *answer) status() (*metav1.Status, error) {
	out := &metav1.Status{}
	if err := json.Unmarshal(a.body, out); err != nil {
		return nil, fmt.Errorf("reading the answer %s: %w", a.body, err)
	}
	return out, nil
}

// must sends a request that must succeed and returns the object in the answer.
func (s *server) must(t *testing.T, method, path string, obj map[string]any) map[string]any {
	t.Helper()
	var body []byte
	if obj != nil {
		body = encode(t, obj)
	}
	a, err := s.do(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	if a.code/100 != 2 {
		t.Fatalf("%s %s: %d %s\n%s", method, path, a.code, a.body, body)
	}
	out, err := a.object()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// install creates a definition, waits until its versions are served, and removes it at the end of the test.
func (s *server) install(t *testing.T, crd map[string]any) {
	t.Helper()
	s.must(t, http.MethodPost, definitions, crd)
	t.Cleanup(func() { s.remove(t, text(crd, "metadata", "name")) })
	s.served(t, crd)
}

// remove removes a definition, and waits for the end of its deletion.
func (s *server) remove(t *testing.T, name string) {
	t.Helper()
	path := definitions + "/" + name
	if _, err := s.do(context.WithoutCancel(t.Context()), http.MethodDelete, path, nil); err != nil {
		t.Error(err)
	}
	harness.Eventually(t, name+" is gone", func(ctx context.Context) error {
		a, err := s.do(ctx, http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		return a.want(http.StatusNotFound)
	})
}

// served waits until the API server serves all versions of a definition.
func (s *server) served(t *testing.T, crd map[string]any) {
	t.Helper()
	for _, version := range list(crd, "spec", "versions") {
		name, _ := version.(map[string]any)["name"].(string)
		path := fmt.Sprintf("/apis/%s/%s/%s", text(crd, "spec", "group"), name, text(crd, "spec", "names", "plural"))
		harness.Eventually(t, path+" is served", func(ctx context.Context) error {
			a, err := s.do(ctx, http.MethodGet, path, nil)
			if err != nil {
				return err
			}
			return a.want(http.StatusOK)
		})
	}
}

// encode writes an object as JSON in which a float stays a float: 1.0 does not become 1.
func encode(t *testing.T, obj map[string]any) []byte {
	t.Helper()
	raw, err := json.Marshal(pointed(obj))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func pointed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = pointed(value)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = pointed(v[i])
		}
		return out
	case float64:
		if raw := fmt.Sprintf("%g", v); strings.Trim(raw, "-0123456789") == "" {
			return json.RawMessage(raw + ".0")
		}
	}
	return v
}

// decode reads JSON as an API server does.
func decode(t *testing.T, raw []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// parse reads YAML as kubectl and an API server do.
func parse(t *testing.T, manifest string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, raw)
}

func yamlOf(v any) string {
	out, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// at returns the value at a path of keys.
func at(obj map[string]any, path ...string) any {
	var v any = obj
	for _, key := range path {
		members, _ := v.(map[string]any)
		v = members[key]
	}
	return v
}

func text(obj map[string]any, path ...string) string {
	out, _ := at(obj, path...).(string)
	return out
}

func list(obj map[string]any, path ...string) []any {
	out, _ := at(obj, path...).([]any)
	return out
}
