package simulation

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"refract.dev/test/harness"
)

const (
	configmaps  = "/api/v1/namespaces/default/configmaps"
	deployments = "/apis/apps/v1/namespaces/default/deployments"
	protobuf    = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partial     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partialList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	apply       = "?fieldManager=refract&force=true"
	web         = `{"metadata":{"resourceVersion":"1","name":"web","labels":{"kubeadmiral.io/managed":"true"},"annotations":{"refract.dev/source":"s"}},` +
		`"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":%d,"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},` +
		`"spec":{"containers":[{"name":"a","image":"a:1","args":["-v"],"ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}]}],"volumes":[{"name":"c","emptyDir":{}}]}}}}`
	settings = `{"metadata":{%s"name":"settings","labels":{"kubeadmiral.io/managed":"true"%s}},"apiVersion":"v1","kind":"ConfigMap","data":{"a":"%s"}}`
)

// step is a request whose answers are compared.
type step struct {
	name, method, path, accept, media, body string
	// metadata limits the comparison to the metadata, because the simulated server sets no defaults.
	metadata bool
}

// steps returns the requests. The placeholder {uid} stands for the UID of the last object in a response, and {version}
// for the resourceVersion of the first list.
func steps() []step {
	applied := func(name, path, body string) step {
		return step{name: name, method: http.MethodPatch, path: path + apply, accept: partial, media: "application/apply-patch+yaml", body: body}
	}
	withUID := func(replicas int) string {
		return strings.Replace(fmt.Sprintf(web, replicas), `"resourceVersion":"1"`, `"uid":"{uid}"`, 1)
	}
	list := step{method: http.MethodGet, path: configmaps + "?labelSelector=kubeadmiral.io/managed%3Dtrue", accept: partialList}
	named := func(s step, name string) step { s.name = name; return s }
	return []step{
		named(list, "a list of none, to begin the watch"),
		applied("an apply that creates", deployments+"/web", fmt.Sprintf(web, 1)),
		applied("an apply that expected nothing there", deployments+"/web", fmt.Sprintf(web, 2)),
		{name: "a read as protobuf", method: http.MethodGet, path: deployments + "/web", accept: protobuf},
		applied("an apply of an existing object, by UID", deployments+"/web", withUID(1)),
		applied("an apply of something else, by UID", deployments+"/web", withUID(2)),
		applied("an apply for another UID", deployments+"/web", strings.Replace(fmt.Sprintf(web, 2), `"resourceVersion":"1"`, `"uid":"b0ba"`, 1)),
		applied("an apply by UID to nothing", deployments+"/none", strings.ReplaceAll(withUID(2), `"name":"web"`, `"name":"none"`)),
		applied("an apply in no namespace", "/api/v1/namespaces/nowhere/configmaps/settings", fmt.Sprintf(settings, "", "", "1")),
		applied("an apply of a ConfigMap", configmaps+"/settings", fmt.Sprintf(settings, "", "", "1")),
		applied("an apply of another value", configmaps+"/settings", fmt.Sprintf(settings, "", "", "2")),
		{name: "a change by another manager", method: http.MethodPatch, path: configmaps + "/settings?fieldManager=kubectl", accept: partial, media: "application/merge-patch+json", body: `{"data":{"a":"x","b":"y"}}`},
		applied("an apply without the label", configmaps+"/settings", `{"metadata":{"name":"settings"},"apiVersion":"v1","kind":"ConfigMap","data":{"a":"2","b":"z"}}`),
		applied("an apply with the label again", configmaps+"/settings", fmt.Sprintf(settings, "", `,"more":"x"`, "2")),
		applied("an apply of a second", configmaps+"/settings2", strings.ReplaceAll(fmt.Sprintf(settings, "", "", "1"), `"settings"`, `"settings2"`)),
		named(list, "a list of two"),
		{name: "a list of one", method: http.MethodGet, path: list.path + "&limit=1", accept: partialList},
		{name: "a whole object", method: http.MethodGet, path: configmaps + "/settings", accept: "application/json"},
		{name: "a whole Deployment", method: http.MethodGet, path: deployments + "/web", accept: "application/json", metadata: true},
		{name: "a namespace", method: http.MethodPost, path: "/api/v1/namespaces?fieldManager=refract", media: "application/json", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"one","annotations":{"a":"b"}}}`, accept: partial},
		{name: "the namespace again", method: http.MethodPost, path: "/api/v1/namespaces?fieldManager=refract", media: "application/json", body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"one"}}`, accept: partial},
		{name: "a deletion of another", method: http.MethodDelete, path: configmaps + "/settings", media: "application/json", body: `{"kind":"DeleteOptions","apiVersion":"v1","preconditions":{"uid":"b0ba"}}`},
		{name: "a deletion", method: http.MethodDelete, path: configmaps + "/settings", media: "application/json", body: `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Background"}`},
		{name: "a deletion of nothing", method: http.MethodDelete, path: configmaps + "/settings"},
		{name: "a read of nothing", method: http.MethodGet, path: configmaps + "/settings", accept: protobuf},
		{name: "a type that is not served", method: http.MethodGet, path: "/apis/example.com/v1/namespaces/default/things"},
		{name: "the changes since the first list", method: http.MethodGet, path: list.path + "&watch=true&timeoutSeconds=1&resourceVersion={version}", accept: partial},
		{name: "a watch that begins with the existing objects", method: http.MethodGet, path: list.path + "&watch=true&timeoutSeconds=1&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", accept: partial},
	}
}

// TestHonest compares the responses of a simulated member with those of a real API server.
func TestHonest(t *testing.T) {
	e := harness.New(t, harness.Topology{Members: 1})
	cfg, err := e.Config(e.Members[0])
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := startOne(t)
	server := &side{url: cfg.Host, client: client}
	double := &side{url: m.Endpoint, client: clientOf(m), token: m.Token}
	for _, s := range steps() {
		t.Run(s.name, func(t *testing.T) {
			if diff := cmp.Diff(server.ask(t, s), double.ask(t, s)); diff != "" {
				t.Errorf("-a real API server, +the double\n%s", diff)
			}
		})
	}
}

func startOne(t *testing.T) *Member {
	t.Helper()
	f, err := Start(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f.Members[0]
}

func clientOf(m *Member) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: tlsFor(m), ForceAttemptHTTP2: true}}
}

func tlsFor(m *Member) *tls.Config {
	cfg, _ := rest.TLSConfigFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: m.CA}})
	return cfg
}

// side is one of the two servers.
type side struct {
	url, token   string
	client       *http.Client
	uid, version string
	uids         []string
}

// response is the compared part of an answer.
type response struct {
	Code  int
	Media string
	Body  []any
}

func (s *side) ask(t *testing.T, step step) response {
	t.Helper()
	known := strings.NewReplacer("{uid}", s.uid, "{version}", s.version)
	req, err := http.NewRequestWithContext(t.Context(), step.method, s.url+known.Replace(step.path), strings.NewReader(known.Replace(step.body)))
	if err != nil {
		t.Fatal(err)
	}
	for header, value := range map[string]string{"Accept": step.accept, "Content-Type": step.media} {
		if value != "" {
			req.Header.Set(header, value)
		}
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	got := response{Code: resp.StatusCode, Media: resp.Header.Get("Content-Type")}
	if strings.Contains(got.Media, "protobuf") {
		object, _, err := codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if text, err = json.Marshal(object); err != nil {
			t.Fatal(err)
		}
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		var one any
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			got.Body = append(got.Body, string(text))
			break
		}
		if o, ok := one.(map[string]any); ok {
			s.learn(o)
			if step.metadata {
				one = o["metadata"]
			}
		}
		got.Body = append(got.Body, s.plain(one))
	}
	return got
}

func (s *side) learn(o map[string]any) {
	meta, _ := o["metadata"].(map[string]any)
	if uid, ok := meta["uid"].(string); ok {
		s.uid = uid
	} else if version, ok := meta["resourceVersion"].(string); ok && s.version == "" {
		s.version = version
	}
}

var uids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// plain replaces values that differ between servers or runs.
func (s *side) plain(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			switch key {
			case "resourceVersion", "continue":
				v[key] = fmt.Sprint(value != "")
			default:
				v[key] = s.plain(value)
			}
		}
		return v
	case []any:
		for i := range v {
			v[i] = s.plain(v[i])
		}
		return v
	case string:
		if _, err := time.Parse(time.RFC3339, v); err == nil {
			return "(a time)"
		}
		return uids.ReplaceAllStringFunc(v, func(uid string) string {
			for i, known := range s.uids {
				if known == uid {
					return fmt.Sprintf("(uid %d)", i)
				}
			}
			s.uids = append(s.uids, uid)
			return fmt.Sprintf("(uid %d)", len(s.uids)-1)
		})
	default:
		return v
	}
}
