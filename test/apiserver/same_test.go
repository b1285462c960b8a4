package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"refract.dev/fleet/hub"
	"refract.dev/test/harness"
)

var (
	seed  = flag.Uint64("seed", 1, "the seed of the random requests of TestSameAnswers")
	trace = flag.String("trace", "", "part of the paths whose answers TestSameAnswers prints")
	count = flag.Int("requests", 2000, "how many requests TestSameAnswers sends")
)

// ask is a request. The placeholders {rv}, {old} and {uid} stand for the current resourceVersion, an earlier
// resourceVersion and the UID of the object in the request.
type ask struct {
	method, path, query, accept, media, body, object string
}

func (a *ask) String() string {
	return fmt.Sprintf("%s %s?%s accept=%s type=%s\n%s", a.method, a.path, a.query, a.accept, a.media, a.body)
}

// side is one of the two servers.
type side struct {
	name  string
	send  func(r *http.Request) (code int, media string, body []byte, err error)
	rv    map[string][]string // Resource versions of each object, in the order in which responses contained them.
	uid   map[string]string
	token string
	known map[string]string // Replacements of strings that differ between the servers.
	count map[string]int
	began string // The resourceVersion of an earlier list.
}

func newSide(name string, send func(r *http.Request) (int, string, []byte, error)) *side {
	return &side{name: name, send: send, rv: map[string][]string{}, uid: map[string]string{}, known: map[string]string{}, count: map[string]int{}}
}

// alias returns the replacement of a string in comparisons.
func (s *side) alias(kind, text string) string {
	key := kind + " " + text
	if s.known[key] == "" {
		s.count[kind]++
		s.known[key] = fmt.Sprintf("(%s %d)", kind, s.count[kind])
	}
	return s.known[key]
}

func (s *side) fill(a *ask, text string) string {
	rv, old := "0", "1"
	if all := s.rv[a.object]; len(all) > 0 {
		rv, old = all[len(all)-1], all[0]
	}
	return strings.NewReplacer("{rv}", rv, "{old}", old, "{uid}", cmp.Or(s.uid[a.object], "00000000-0000-4000-8000-999999999999"), "{continue}", s.token, "{began}", s.began).Replace(text)
}

// reply is the compared part of an answer.
type reply struct {
	Code  int
	Media string
	Body  []any
}

func (s *side) ask(a *ask) (reply, error) {
	r, err := http.NewRequest(a.method, s.fill(a, a.path+"?"+a.query), strings.NewReader(s.fill(a, a.body)))
	if err != nil {
		return reply{}, err
	}
	for header, value := range map[string]string{"Accept": a.accept, "Content-Type": a.media, "User-Agent": "agent/1.0"} {
		if value != "" {
			r.Header.Set(header, value)
		}
	}
	code, media, body, err := s.send(r)
	if err != nil {
		return reply{}, err
	}
	got := reply{Code: code, Media: media}
	if strings.Contains(media, "protobuf") && !strings.Contains(media, "stream") {
		object, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return got, err
		}
		if body, err = json.Marshal(object); err != nil {
			return got, err
		}
	}
	for d := json.NewDecoder(bytes.NewReader(body)); ; {
		var one any
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			got.Body = append(got.Body, string(body))
			break
		}
		if o, ok := one.(map[string]any); ok {
			if o["type"] == "BOOKMARK" {
				if at(o, "object", "metadata", "annotations") == nil {
					continue // Such a bookmark may come at any time.
				}
				at(o, "object", "metadata")["resourceVersion"] = "(of the list)"
				delete(at(o, "object"), "spec") // The spec is empty, with additional zero values in kube-apiserver.
				delete(at(o, "object"), "status")
			}
			s.learn(a, o, code)
			if spec := at(o, "spec"); spec != nil && strings.Contains(a.query, "dryRun") {
				delete(spec, "clusterIP") // A dry run returns a random address and random node ports.
				delete(spec, "clusterIPs")
				for _, p := range objects(spec, "ports") {
					delete(p, "nodePort")
				}
			}
		}
		got.Body = append(got.Body, s.plain("", one))
	}
	return got, nil
}

func (s *side) learn(a *ask, o map[string]any, code int) {
	meta, _ := o["metadata"].(map[string]any)
	if token, ok := meta["continue"].(string); ok {
		s.token = token
	}
	version, _ := meta["resourceVersion"].(string)
	if _, list := o["items"]; list && code == http.StatusOK {
		s.began = cmp.Or(s.began, version)
		return
	}
	if uid, ok := meta["uid"].(string); ok && a.object != "" && !strings.Contains(a.query, "dryRun") {
		s.uid[a.object] = uid
		if all := s.rv[a.object]; len(all) == 0 || all[len(all)-1] != version {
			s.rv[a.object] = append(all, version)
		}
	}
}

var (
	uidPattern       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	ipPattern        = regexp.MustCompile(`\b10\.\d+\.\d+\.\d+\b`)
	generatedPattern = regexp.MustCompile(`\bgen-[a-z0-9]{5}\b`)
	versionPattern   = regexp.MustCompile(`(version: |current: |precondition: |meta: |\()\d+`)
	valuePattern     = regexp.MustCompile(`Invalid value: (?:[{\[].*?|null|""): (field is immutable|` + "`selector` does not match template `labels`" + `)`)
	templatePattern  = regexp.MustCompile(`,? ?spec\.template(\.spec)?: Invalid value: V: field is immutable`)
	timePattern      = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
)

// plain replaces values that differ between the servers.
func (s *side) plain(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		_, list := v["items"]
		meta, _ := v["metadata"].(map[string]any)
		if list && meta != nil {
			meta["resourceVersion"] = "(of the list)"
		}
		keys := make([]string, 0, len(v))
		for key := range v {
			keys = append(keys, key)
		}
		slices.Sort(keys)
		for _, key := range keys {
			v[key] = s.plain(key, v[key])
		}
		return v
	case []any:
		for i := range v {
			v[i] = s.plain(key, v[i])
		}
		if key == "causes" { // The validation of template changes of suspended Jobs is not simulated.
			v = slices.DeleteFunc(v, func(cause any) bool {
				m, _ := cause.(map[string]any)
				return m["field"] == "spec.template" || m["field"] == "spec.template.spec"
			})
			slices.SortFunc(v, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) }) // Their order is random.
		}
		if key == "managedFields" { // The API server sorts managedFields by time first.
			slices.SortFunc(v, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		return v
	case float64:
		if key == "nodePort" && v != 0 {
			return s.alias("port", fmt.Sprint(v))
		}
		return v
	case string:
		switch {
		case key == "resourceVersion" && v != "" && v != "(of the list)":
			return s.alias("version", v)
		case key == "continue" && v != "":
			return "(continue)"
		}
		v = uidPattern.ReplaceAllStringFunc(v, func(uid string) string { return s.alias("uid", uid) })
		v = timePattern.ReplaceAllString(v, "(time)")
		v = generatedPattern.ReplaceAllStringFunc(v, func(text string) string { return s.alias("generated", text) })
		v = ipPattern.ReplaceAllStringFunc(v, func(text string) string { return s.alias("ip", text) })
		if key == "message" {
			v, _, _ = strings.Cut(v, "Object 'Kind' is missing")
			if strings.Contains(v, "spec.nothing") {
				v = "(a field that cannot be selected by)" // The message differs between types.
			}
			if at := strings.Index(v, `patch: Invalid value: "{`); at >= 0 {
				v = v[:at]
			} else if strings.HasPrefix(v, `Invalid value: "{`) {
				v = ""
			}
			if i := strings.Index(v, "for bound claims"); i >= 0 { // kube-apiserver appends the Go value of the change.
				v = v[:i]
			}
			// kube-apiserver prints Go values.
			v = valuePattern.ReplaceAllString(v, "Invalid value: V: $1")
			v = templatePattern.ReplaceAllString(v, "")
			if head, list, ok := strings.Cut(v, " is invalid: ["); ok {
				all := strings.Split(strings.TrimSuffix(list, "]"), ", ")
				slices.Sort(all)
				v = head + " is invalid: [" + strings.Join(all, ", ") + "]"
			}
			v = versionPattern.ReplaceAllString(v, "${1}N")
		}
		return v
	}
	return v
}

// differing lists the values that differ, by their place.
func differing(want, got reply) string {
	flat := func(r reply) map[string]string {
		all := map[string]string{"code": strconv.Itoa(r.Code), "media": r.Media}
		var walk func(at string, v any)
		walk = func(at string, v any) {
			switch v := v.(type) {
			case map[string]any:
				for key, value := range v {
					walk(at+"/"+key, value)
				}
				if len(v) == 0 {
					all[at] = "{}"
				}
			case []any:
				for i, value := range v {
					walk(at+"/"+strconv.Itoa(i), value)
				}
				if len(v) == 0 {
					all[at] = "[]"
				}
			default:
				all[at] = fmt.Sprint(v)
			}
		}
		walk("", r.Body)
		return all
	}
	a, b := flat(want), flat(got)
	var lines []string
	for at, value := range a {
		if other, ok := b[at]; !ok {
			lines = append(lines, "- "+at+": "+value)
		} else if other != value {
			lines = append(lines, "- "+at+": "+value, "+ "+at+": "+other)
		}
	}
	for at, value := range b {
		if _, ok := a[at]; !ok {
			lines = append(lines, "+ "+at+": "+value)
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(cmp.Compare(a[2:], b[2:]), cmp.Compare(b, a)) })
	return "-kube-apiserver, +in memory\n" + strings.Join(lines[:min(len(lines), 30)], "\n")
}

// inMemory returns a function that sends requests to the server in this process.
func inMemory(s *Server) func(r *http.Request) (int, string, []byte, error) {
	return func(r *http.Request) (int, string, []byte, error) {
		var body []byte
		if r.Body != nil {
			var err error
			if body, err = io.ReadAll(r.Body); err != nil {
				return 0, "", nil, err
			}
		}
		if IsWatch(r) {
			w, refused := s.Watch(r)
			if w == nil {
				return refused.Code, refused.Header.Get("Content-Type"), refused.Body, nil
			}
			defer w.Stop()
			var all []byte
			for w.Waiting() > 0 {
				all = append(all, w.Next()...)
			}
			return http.StatusOK, w.Header().Get("Content-Type"), all, nil
		}
		a := s.Serve(r, body)
		return a.Code, a.Header.Get("Content-Type"), a.Body, nil
	}
}

func overHTTP(base string, c *http.Client) func(r *http.Request) (int, string, []byte, error) {
	return func(r *http.Request) (int, string, []byte, error) {
		full, err := http.NewRequest(r.Method, base+r.URL.String(), r.Body)
		if err != nil {
			return 0, "", nil, err
		}
		full.Header = r.Header
		resp, err := c.Do(full)
		if err != nil {
			return 0, "", nil, err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		return resp.StatusCode, resp.Header.Get("Content-Type"), body, err
	}
}

// TestSameAnswers sends random requests to kube-apiserver and to a server in memory, and compares the answers.
func TestSameAnswers(t *testing.T) {
	began := time.Now()
	e := harness.New(t, harness.Topology{Members: 1})
	t.Logf("kube-apiserver took %s to start", time.Since(began).Round(time.Millisecond))
	cfg, err := e.Config(e.Members[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := hub.InstallCRDs(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := newSide("kube-apiserver", overHTTP(cfg.Host, client))
	s := New(Options{Types: append(BuiltIn(), refractTypes(t)...)})
	s.Wipe()
	double := newSide("in memory", inMemory(s))
	t.Logf("seed %d", *seed)
	g := &generator{rand.New(rand.NewPCG(*seed, 0))}
	failures := 0
	compare := func(name string, a *ask) {
		want, err := server.ask(a)
		if err != nil {
			t.Fatalf("%s: %s: %v", name, a, err)
		}
		got, err := double.ask(a)
		if err != nil {
			t.Fatalf("%s: %s: %v", name, a, err)
		}
		if *trace != "" && strings.Contains(a.path, *trace) {
			t.Logf("%s: %s\n%s\n%s", name, a, encode(want), encode(got))
		}
		if !gocmp.Equal(want, got) {
			t.Errorf("-seed %d, %s: %s\n%s", *seed, name, a, differing(want, got))
			for kind := range server.count { // So both sides number later values equally again.
				most := max(server.count[kind], double.count[kind])
				server.count[kind], double.count[kind] = most, most
			}
			if failures++; failures >= 15 {
				t.FailNow()
			}
		}
	}
	for _, of := range sorts { // Wait until kube-apiserver serves the CRDs.
		harness.Eventually(t, "serving "+of.resource, func(context.Context) error {
			r, err := server.ask(&ask{method: http.MethodGet, path: of.collection("default")})
			if err == nil && r.Code != http.StatusOK {
				err = fmt.Errorf("%s: %d", of.resource, r.Code)
			}
			return err
		})
	}
	server = newSide("kube-apiserver", server.send)
	for i, a := range g.begin() {
		compare(fmt.Sprintf("beginning %d", i), a)
	}
	for i := range *count {
		if i == *count*3/4 {
			compare("the deletion of a namespace", &ask{method: http.MethodDelete, path: "/api/v1/namespaces/doomed", object: "namespaces//doomed"})
		}
		if i == *count/2 { // The watches begin here, because kube-apiserver may have dropped older events.
			server.began, double.began = "", ""
			compare("where watches begin", &ask{method: http.MethodGet, path: "/api/v1/namespaces/one/configmaps"})
		}
		compare(fmt.Sprintf("request %d", i), g.next())
	}
	asks := g.watches()
	want, got := make([]reply, len(asks)), make([]reply, len(asks))
	var wg sync.WaitGroup
	raw := make([][]byte, len(asks))
	for i, a := range asks {
		wg.Go(func() {
			r := httptest.NewRequest(a.method, server.fill(a, a.path+"?"+a.query), nil)
			r.Header.Set("Accept", a.accept)
			r.RequestURI = ""
			_, _, raw[i], _ = server.send(r)
		})
	}
	wg.Wait()
	for i, a := range asks {
		replay := *server
		replay.send = func(*http.Request) (int, string, []byte, error) {
			return http.StatusOK, "application/json", raw[i], nil
		}
		if want[i], err = replay.ask(a); err != nil {
			t.Fatal(err)
		}
		if got[i], err = double.ask(a); err != nil {
			t.Fatal(err)
		}
		if !gocmp.Equal(want[i].Body, got[i].Body) {
			t.Errorf("-seed %d, a watch: %s\n%s", *seed, a, differing(want[i], got[i]))
		}
	}
}

// generator generates random requests.
type generator struct{ *rand.Rand }

// kindOf is a type of the requested objects.
type kindOf struct {
	path, resource, kind, version string
	cluster, custom, scale        bool
	body                          func(g *generator, o map[string]any)
	merges, jsons, applies        []string
	status                        []string
}

func (g *generator) one(of ...string) string { return of[g.IntN(len(of))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

const podText = `"spec":{"containers":[{"name":"a","image":"%s","env":[{"name":"A","value":"1"}],"ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1000m"}}}],"volumes":[{"name":"v","configMap":{"name":"x"}}]}`

func (g *generator) template() any {
	return parsed(fmt.Sprintf(`{"metadata":{"labels":{"app":"web"}},`+podText+`}`, g.one("a", "a:1", "b:2")))
}

func parsed(text string) any {
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(text + ": " + err.Error())
	}
	return v
}

var sorts = []*kindOf{
	{
		path: "/api/v1", resource: "configmaps", kind: "ConfigMap", version: "v1",
		body: func(g *generator, o map[string]any) {
			o["data"] = map[string]any{"a": g.one("1", "2", "3"), "b": "x"}
			if g.chance(3) {
				o["immutable"] = true
			}
		},
		merges:  []string{`{"data":{"a":"9"}}`, `{"data":{"a":null,"c":"4"}}`, `{"data":null}`, `{"data":{"a":7}}`, `{"unknown":1}`},
		jsons:   []string{`[{"op":"replace","path":"/data/a","value":"8"}]`, `[{"op":"remove","path":"/data/zzz"}]`, `[{"op":"test","path":"/data/a","value":"1"},{"op":"add","path":"/data/d","value":"d"}]`, `[{"op":"add","path":"/data/e","value":"e"}]`, `{}`},
		applies: []string{`{"data":{"a":"1"}}`, `{"data":{"a":"2","z":"z"}}`, `{"data":{"b":"y"}}`, `{}`, `{"unknown":1}`},
	},
	{
		path: "/api/v1", resource: "secrets", kind: "Secret", version: "v1",
		body: func(g *generator, o map[string]any) {
			if g.chance(50) {
				o["stringData"] = map[string]any{"a": g.one("1", "2")}
			}
			if g.chance(50) {
				o["data"] = map[string]any{"b": g.one("MQ==", "Mg==")}
			}
			if g.chance(30) {
				o["type"] = g.one("Opaque", "example.com/x")
			}
		},
		merges:  []string{`{"stringData":{"a":"9"}}`, `{"data":{"b":null}}`, `{"type":"example.com/y"}`, `{"data":{"b":"no base64!"}}`},
		jsons:   []string{`[{"op":"add","path":"/data","value":{"a":"MQ=="}}]`},
		applies: []string{`{"data":{"b":"MQ=="}}`, `{"stringData":{"a":"1"}}`, `{"type":"Opaque","data":{"c":"MQ=="}}`},
	},
	{
		path: "/apis/apps/v1", resource: "deployments", kind: "Deployment", version: "apps/v1", scale: true,
		body: func(g *generator, o map[string]any) {
			spec := map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "web"}}, "template": g.template()}
			if g.chance(50) {
				spec["replicas"] = g.IntN(4)
			}
			if g.chance(10) {
				spec["strategy"] = map[string]any{"type": "Recreate"}
			}
			if g.chance(5) {
				spec["selector"] = map[string]any{"matchLabels": map[string]any{"app": "other"}}
			}
			o["spec"] = spec
		},
		merges: []string{
			`{"spec":{"replicas":2}}`, `{"spec":{"replicas":null}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"z","image":"z"}]}}}}`, `{"spec":{"selector":{"matchLabels":{"x":"y"}}}}`,
			`{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`, `{"spec":{"replicas":"many"}}`, `{"status":{"replicas":7}}`, `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`,
		},
		jsons: []string{`[{"op":"replace","path":"/spec/replicas","value":3}]`, `[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"n","image":"n"}}]`},
		applies: []string{
			`{"spec":{"replicas":1}}`, `{"spec":{"replicas":2}}`,
			`{"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"a","image":"a:1"}]}}}}`,
			`{"spec":{"selector":{"matchLabels":{"app":"web"}},"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"a","image":"a:2","env":[{"name":"B","value":"2"}]},{"name":"side","image":"s"}]}}}}`,
		},
		status: []string{`{"status":{"replicas":2,"observedGeneration":1}}`, `{"status":{"conditions":[{"type":"Available","status":"True","reason":"x","message":"","lastUpdateTime":"2020-01-01T00:00:00Z","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`, `{"spec":{"replicas":9},"metadata":{"labels":{"l":"s"}}}`},
	},
	{
		path: "/api/v1", resource: "services", kind: "Service", version: "v1",
		body: func(g *generator, o map[string]any) {
			spec := map[string]any{"selector": map[string]any{"app": "web"}, "ports": []any{map[string]any{"port": 80, "name": "http"}}}
			if g.chance(30) {
				spec["type"] = g.one("ClusterIP", "NodePort", "LoadBalancer")
			}
			o["spec"] = spec
		},
		merges:  []string{`{"spec":{"type":"NodePort"}}`, `{"spec":{"type":"ClusterIP"}}`, `{"spec":{"clusterIP":"10.97.0.250"}}`, `{"spec":{"ports":[{"port":81,"name":"http","targetPort":"x"}]}}`, `{"spec":{"selector":{"a":"b"}}}`},
		jsons:   []string{`[{"op":"replace","path":"/spec/ports/0/port","value":82}]`},
		applies: []string{`{"spec":{"ports":[{"port":80,"name":"http"}]}}`, `{"spec":{"ports":[{"port":83,"name":"more"},{"port":80,"name":"http"}],"selector":{"app":"x"}}}`},
	},
	{
		path: "/apis/batch/v1", resource: "jobs", kind: "Job", version: "batch/v1",
		body: func(g *generator, o map[string]any) {
			template := parsed(fmt.Sprintf(`{"metadata":{"labels":{"x":"y"}},"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"%s"}]}}`, g.one("a", "b:1")))
			spec := map[string]any{"template": template}
			if g.chance(30) {
				spec["completions"] = 1 + g.IntN(3)
			}
			o["spec"] = spec
		},
		merges:  []string{`{"spec":{"suspend":true}}`, `{"spec":{"completions":9}}`, `{"spec":{"ttlSecondsAfterFinished":5}}`, `{"spec":{"parallelism":3}}`},
		jsons:   []string{`[{"op":"add","path":"/spec/suspend","value":false}]`},
		applies: []string{`{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]}}}}`, `{"spec":{"parallelism":2}}`},
		status:  []string{`{"status":{"active":1}}`},
	},
	{
		path: "/api/v1", resource: "persistentvolumeclaims", kind: "PersistentVolumeClaim", version: "v1",
		body: func(g *generator, o map[string]any) {
			o["spec"] = map[string]any{"accessModes": []any{"ReadWriteOnce"}, "storageClassName": g.one("x", "y"), "resources": map[string]any{"requests": map[string]any{"storage": g.one("1Gi", "2Gi")}}}
		},
		merges:  []string{`{"spec":{"volumeName":"pv"}}`, `{"spec":{"storageClassName":"z"}}`},
		jsons:   []string{`[{"op":"add","path":"/spec/volumeName","value":"pv2"}]`},
		applies: []string{`{"spec":{"accessModes":["ReadWriteOnce"],"storageClassName":"x","resources":{"requests":{"storage":"1Gi"}}}}`},
		status:  []string{`{"status":{"phase":"Bound","capacity":{"storage":"1Gi"}}}`},
	},
	{
		path: "/apis/coordination.k8s.io/v1", resource: "leases", kind: "Lease", version: "coordination.k8s.io/v1",
		body: func(g *generator, o map[string]any) {
			o["spec"] = map[string]any{"holderIdentity": g.one("a", "b"), "leaseDurationSeconds": 10 + g.IntN(5), "renewTime": "2020-01-01T00:00:00.000000Z"}
		},
		merges:  []string{`{"spec":{"holderIdentity":"c"}}`, `{"spec":{"holderIdentity":null}}`},
		jsons:   []string{`[{"op":"replace","path":"/spec/leaseDurationSeconds","value":30}]`},
		applies: []string{`{"spec":{"holderIdentity":"d"}}`, `{"spec":{"leaseDurationSeconds":11}}`},
	},
	{
		path: "/api/v1", resource: "namespaces", kind: "Namespace", version: "v1", cluster: true,
		body:    func(*generator, map[string]any) {},
		merges:  []string{`{"metadata":{"labels":{"team":"a"}}}`},
		jsons:   []string{`[{"op":"add","path":"/metadata/annotations","value":{"n":"n"}}]`},
		applies: []string{`{"metadata":{"labels":{"team":"b"}}}`, `{}`},
		status:  []string{`{"status":{"conditions":[{"type":"X","status":"True"}]}}`},
	},
	{
		path: "/apis/refract.dev/v1alpha1", resource: "propagations", kind: "Propagation", version: "refract.dev/v1alpha1", custom: true,
		body: func(g *generator, o map[string]any) {
			spec, _ := parsed(`{"source":{"apiVersion":"v1","kind":"ConfigMap","name":"c","resource":"configmaps"}}`).(map[string]any)
			if g.chance(10) {
				delete(spec, "source")
			}
			o["spec"] = spec
		},
		merges: []string{`{"spec":{"unknown":1}}`, `{"status":{"placed":3}}`, `{"spec":null}`, `{"spec":{"source":{"uid":"u"}}}`, `{"spec":{"source":{"name":null}}}`},
		jsons:  []string{`[{"op":"add","path":"/metadata/annotations","value":{"x":"y"}}]`, `[{"op":"replace","path":"/spec/source/name","value":"d"}]`},
		applies: []string{
			`{}`, `{"metadata":{"annotations":{"k":"v"}}}`, `{"spec":{"source":{"apiVersion":"v1","kind":"ConfigMap","name":"e","resource":"configmaps"}}}`,
			`{"spec":{"source":{"apiVersion":"v1","kind":"ConfigMap","name":"c","resource":"configmaps","uid":"x"}}}`, `{"spec":{"unknown":{}}}`,
		},
		status: []string{
			`{"status":{"placed":1,"synced":1,"variantCount":1}}`, `{"status":{"placed":2,"synced":0,"variantCount":1,"clusters":[{"name":"m","state":"Pending"},{"name":"n","state":"Synced","generation":2}]}}`,
			`{"status":{"placed":1,"synced":1,"variantCount":1,"unknown":1},"metadata":{"labels":{"l":"x"}}}`, `{"status":{"unknown":1}}`, `{"status":{"placed":1,"synced":0,"variantCount":0,"clusters":[{"name":"m","state":"Nonsense"}]}}`,
			`{"status":{"placed":1,"synced":1,"variantCount":0,"conditions":[{"type":"A","status":"True","reason":"R","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]},"spec":{"source":{"name":"changed"}}}`,
			`{"status":{"placed":1,"synced":1,"variantCount":0,"conditions":[{"type":"B","status":"False","reason":"R","message":"m","lastTransitionTime":"2020-01-01T00:00:00Z"},{"type":"A","status":"False","reason":"R","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`,
		},
	},
	{
		path: "/apis/core.kubeadmiral.io/v1alpha1", resource: "federatedclusters", kind: "FederatedCluster", version: "core.kubeadmiral.io/v1alpha1", cluster: true, custom: true,
		body: func(g *generator, o map[string]any) {
			o["spec"] = map[string]any{"apiEndpoint": g.one("https://a", "https://b"), "insecure": g.chance(50), "secretRef": map[string]any{"name": "s"}}
		},
		merges:  []string{`{"spec":{"apiEndpoint":"https://c"}}`, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule","value":"x"}]}}`, `{"spec":{"insecure":"no"}}`, `{"spec":{"unknown":{"a":1}}}`},
		jsons:   []string{`[{"op":"replace","path":"/spec/insecure","value":true}]`},
		applies: []string{`{"spec":{"apiEndpoint":"https://d","secretRef":{"name":"s"}}}`, `{"spec":{"taints":[{"key":"b","effect":"NoExecute"}]}}`},
		status:  []string{`{"status":{"conditions":[{"type":"Ready","status":"True","lastProbeTime":"2020-01-01T00:00:00Z"}]}}`, `{"status":{"apiResourceTypes":[{"group":"apps","version":"v1","kind":"Deployment","pluralName":"deployments","scope":"Namespaced"}]}}`},
	},
}

// collection returns the path of the objects of a type in a namespace.
func (s *kindOf) collection(namespace string) string {
	if s.cluster {
		return s.path + "/" + s.resource
	}
	return s.path + "/namespaces/" + namespace + "/" + s.resource
}

func (g *generator) begin() []*ask {
	var all []*ask
	for _, name := range []string{"one", "doomed"} {
		all = append(all, &ask{
			method: http.MethodPost, path: "/api/v1/namespaces", media: "application/json", object: "namespaces//" + name,
			body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + name + `"}}`,
		})
	}
	return append(all, &ask{method: http.MethodGet, path: "/api/v1/namespaces/one/configmaps"})
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// object generates a complete object.
func (g *generator) object(s *kindOf, namespace, name string) map[string]any {
	meta := map[string]any{"name": name}
	if !s.cluster && g.chance(50) {
		meta["namespace"] = namespace
	}
	if g.chance(60) {
		meta["labels"] = map[string]any{"l": g.one("x", "y"), "m": "m"}
	}
	if g.chance(30) {
		meta["annotations"] = map[string]any{"note": g.one("1", "2")}
	}
	if g.chance(15) {
		meta["finalizers"] = []any{"example.com/hold"}
	}
	o := map[string]any{"apiVersion": s.version, "kind": s.kind, "metadata": meta}
	s.body(g, o)
	return o
}

const mediaJSON = "application/json"

// next generates a request.
func (g *generator) next() *ask {
	s := sorts[g.IntN(len(sorts))]
	namespace := "one"
	switch n := g.IntN(100); {
	case s.cluster:
		namespace = ""
	case n < 20:
		namespace = "doomed"
	case n < 22:
		namespace = "missing"
	}
	name := g.one("a", "b", "c")
	if s.resource == "namespaces" {
		name = "ns-" + name
	}
	a := &ask{path: s.collection(namespace), object: s.resource + "/" + namespace + "/" + name}
	query := []string{}
	if g.chance(5) {
		query = append(query, "dryRun=All")
	}
	if g.chance(70) {
		query = append(query, "fieldManager="+g.one("m1", "m2", "m3"))
	}
	if g.chance(15) {
		a.accept = g.one(
			"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
			"application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json", "application/json, */*", "text/plain",
		)
	}
	switch n := g.IntN(100); {
	case n < 20:
		g.create(s, a, namespace, name, &query)
	case n < 30:
		g.update(s, a, namespace, name)
	case n < 55:
		g.patch(s, a, name, &query)
	case n < 63 && len(s.status) > 0:
		g.status(s, a, namespace, name)
	case n < 66 && s.scale:
		a.path += "/" + name + "/scale"
		a.object = ""
		a.accept = ""
		switch g.IntN(3) {
		case 0:
			a.method = http.MethodGet
		case 1:
			a.method, a.media, a.body = http.MethodPatch, "application/merge-patch+json", `{"spec":{"replicas":`+strconv.Itoa(g.IntN(5))+`}}`
		case 2:
			a.method, a.media = http.MethodPut, mediaJSON
			a.body = `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"` + name + `","namespace":"` + namespace + `"},"spec":{"replicas":` + strconv.Itoa(g.IntN(5)) + `}}`
		}
	case n < 78:
		g.delete(a, name, &query)
	case n < 88:
		a.method, query = http.MethodGet, nil
		a.path += "/" + name
		if g.chance(5) {
			a.path = strings.Replace(a.path, "/v1", "/v9", 1)
		}
	default:
		g.list(s, a, &query)
	}
	a.query = strings.Join(query, "&")
	return a
}

func (g *generator) create(s *kindOf, a *ask, namespace, name string, query *[]string) {
	a.method, a.media = http.MethodPost, mediaJSON
	o := g.object(s, namespace, name)
	meta := o["metadata"].(map[string]any)
	switch n := g.IntN(100); {
	case n < 5:
		delete(meta, "name")
		meta["generateName"] = "gen-"
		a.object = ""
		*query = append(*query, "dryRun=All") // Random names would change the order of lists.
	case n < 7 && s.resource != "services": // A Service would be rejected for another reason.
		delete(meta, "name")
	case n < 9:
		meta["name"] = g.one("UPPER", "a_b")
	case n < 11:
		meta["resourceVersion"] = "9999999"
	case n < 13:
		meta["uid"] = "b0ba"
	case n < 15:
		o["apiVersion"] = "example.com/v1"
	case n < 17 && !s.custom: // The API server rejects custom resources with this error only later.
		o["kind"] = "Other"
	case n < 19:
		meta["namespace"] = "elsewhere"
	case n < 21:
		meta["labels"] = map[string]any{"bad key!": "x"}
	case n < 23:
		delete(o, "apiVersion")
		delete(o, "kind")
	case n < 25:
		meta["generation"] = 7
	case n < 27:
		meta["finalizers"] = []any{"not qualified"}
	}
	a.body = encode(o)
}

func (g *generator) update(s *kindOf, a *ask, namespace, name string) {
	a.method, a.media = http.MethodPut, mediaJSON
	a.path += "/" + name
	o := g.object(s, namespace, name)
	g.precondition(o["metadata"].(map[string]any), 60)
	a.body = encode(o)
}

// precondition may add a resourceVersion and a UID.
func (g *generator) precondition(meta map[string]any, percent int) {
	switch n := g.IntN(100); {
	case n < percent:
		meta["resourceVersion"] = "{rv}"
	case n < percent+8:
		meta["resourceVersion"] = "{old}"
	case n < percent+10:
		meta["resourceVersion"] = "9999999"
	}
	switch n := g.IntN(100); {
	case n < 15:
		meta["uid"] = "{uid}"
	case n < 18:
		meta["uid"] = "b0ba"
	}
}

func (g *generator) patch(s *kindOf, a *ask, name string, query *[]string) {
	a.method = http.MethodPatch
	a.path += "/" + name
	common := []string{
		`{"metadata":{"labels":{"l":"z"}}}`, `{"metadata":{"labels":{"l":null}}}`, `{"metadata":{"finalizers":null}}`, `{"metadata":{"finalizers":["example.com/hold"]}}`,
		`{"metadata":{"annotations":{"note":"3"}}}`, `{"metadata":{"managedFields":[{}]}}`, `{"metadata":{"resourceVersion":"{rv}","labels":{"v":"1"}}}`, `{"metadata":{"resourceVersion":"{old}","labels":{"v":"2"}}}`,
		`{"metadata":{"uid":"{uid}","labels":{"v":"3"}}}`, `{"metadata":{"uid":"b0ba"}}`, `{"metadata":{"name":"other"}}`, `{"metadata":{"generation":9}}`, `{"metadata":{"deletionTimestamp":null}}`, `{}`, `not json`,
	}
	switch n := g.IntN(100); {
	case n < 35:
		a.media = "application/merge-patch+json"
		a.body = g.one(append(common, s.merges...)...)
	case n < 45:
		a.media = "application/json-patch+json"
		a.body = g.one(append(s.jsons, `[{"op":"add","path":"/metadata/labels","value":{"j":"1"}}]`)...)
	case n < 60:
		a.media = "application/strategic-merge-patch+json"
		all := append(slices.Clone(common), s.merges...)
		if s.kind == "Deployment" {
			all = append(all, `{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"smp:1"}]}}}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"a","$patch":"delete"},{"name":"b","image":"b"}]}}}}`, `{"spec":{"template":{"spec":{"containers":[{"name":"a","env":[{"name":"Z","value":"1"}]}]}}}}`)
		}
		a.body = g.one(all...)
	case n < 62:
		a.media, a.body = "application/other+json", `{}`
	default:
		a.media = "application/apply-patch+yaml"
		o, _ := parsed(g.one(s.applies...)).(map[string]any)
		meta, _ := o["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
			o["metadata"] = meta
		}
		meta["name"] = name
		if g.chance(30) {
			meta["labels"] = map[string]any{"l": g.one("x", "y", "applied")}
		}
		if g.chance(5) {
			meta["finalizers"] = []any{"example.com/applied"}
		}
		g.precondition(meta, 10)
		o["apiVersion"], o["kind"] = s.version, s.kind
		switch n := g.IntN(100); {
		case n < 2:
			delete(o, "kind")
		case n < 4:
			meta["name"] = "other"
		case n < 5:
			o["apiVersion"] = "v9"
		case n < 6:
			meta["managedFields"] = []any{}
		}
		a.body = encode(o)
		if g.chance(50) {
			*query = append(*query, "force=true")
		}
	}
}

func (g *generator) status(s *kindOf, a *ask, namespace, name string) {
	a.path += "/" + name + "/status"
	switch g.IntN(4) {
	case 0:
		a.method = http.MethodGet
	case 1:
		a.method, a.media = http.MethodPatch, "application/merge-patch+json"
		a.body = g.one(s.status...)
	case 2:
		a.method, a.media = http.MethodPut, mediaJSON
		o := g.object(s, namespace, name)
		change, _ := parsed(g.one(s.status...)).(map[string]any)
		for key, value := range change {
			if key != "metadata" {
				o[key] = value
			}
		}
		g.precondition(o["metadata"].(map[string]any), 60)
		a.body = encode(o)
	case 3:
		a.method, a.media = http.MethodPatch, "application/apply-patch+yaml"
		o, _ := parsed(g.one(s.status...)).(map[string]any)
		o["apiVersion"], o["kind"] = s.version, s.kind
		o["metadata"] = map[string]any{"name": name}
		a.body = encode(o)
	}
}

func (g *generator) delete(a *ask, name string, query *[]string) {
	a.method = http.MethodDelete
	a.path += "/" + name
	*query = slices.DeleteFunc(*query, func(q string) bool { return strings.HasPrefix(q, "fieldManager") })
	o := map[string]any{"kind": "DeleteOptions", "apiVersion": "v1"}
	if g.chance(40) {
		o["propagationPolicy"] = g.one("Background", "Background", "Foreground", "Orphan", "Wrong")
	}
	switch n := g.IntN(100); {
	case n < 10:
		o["preconditions"] = map[string]any{"uid": "{uid}"}
	case n < 15:
		o["preconditions"] = map[string]any{"uid": "b0ba"}
	case n < 25:
		o["preconditions"] = map[string]any{"resourceVersion": "{rv}"}
	case n < 30:
		o["preconditions"] = map[string]any{"resourceVersion": "{old}"}
	}
	if g.chance(10) {
		o["gracePeriodSeconds"] = g.IntN(3)
	}
	if slices.Contains(*query, "dryRun=All") {
		delete(o, "propagationPolicy") // If the policy removes the last finalizer, kube-apiserver returns an empty object.
		o["dryRun"] = []any{"All"}
	}
	if g.chance(80) {
		a.media, a.body = mediaJSON, encode(o)
	}
}

func (g *generator) list(s *kindOf, a *ask, query *[]string) {
	a.method, a.object, *query = http.MethodGet, "", nil
	if g.chance(20) && !s.cluster {
		a.path = s.path + "/" + s.resource
		*query = append(*query, "fieldSelector=metadata.namespace!=kube-system,metadata.namespace!=default")
	}
	everywhere := len(*query) > 0
	if s.resource == "namespaces" {
		*query = append(*query, "fieldSelector="+g.one("metadata.name=one", "metadata.name=ns-a"))
	}
	if s.resource == "services" || s.resource == "namespaces" {
		a.path = s.collection("one")
	}
	switch g.IntN(8) {
	case 0:
		*query = append(*query, "labelSelector=l%3Dx")
	case 1:
		*query = append(*query, "labelSelector=l+in+(x,y),!v")
	case 2, 3:
		if everywhere { // Lists of all namespaces contain objects that the test does not know.
			break
		}
		*query = append(*query, "limit="+strconv.Itoa(1+g.IntN(2)))
	case 4:
		*query = append(*query, "resourceVersion=0")
	case 5:
		*query = append(*query, "resourceVersion=99999999")
		if g.chance(97) { // kube-apiserver waits for three seconds before it rejects this, so the test asks rarely.
			*query = (*query)[:len(*query)-1]
		}
	case 6:
		*query = append(*query, g.one("labelSelector=,,", "fieldSelector=spec.nothing%3Dx", "limit=x", "resourceVersion=x", "continue=x", "resourceVersionMatch=Exact"))
	}
	a.accept = g.one("", "", "", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
}

const initialEvents = "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"

// watches returns watches of all events.
func (g *generator) watches() []*ask {
	var all []*ask
	for _, s := range sorts {
		for _, query := range []string{"resourceVersion={began}", "resourceVersion={began}&labelSelector=l%3Dx", "resourceVersion=0&labelSelector=l%3Dx", initialEvents} {
			if strings.HasSuffix(query, "0&labelSelector=l%3Dx") && s.resource == "services" {
				continue
			}
			if query == initialEvents && s.resource == "namespaces" {
				query += "&fieldSelector=metadata.name%3Done" // Other namespaces exist.
			}
			accept := mediaJSON
			if g.chance(40) {
				accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
			}
			all = append(all, &ask{method: http.MethodGet, path: s.collection("one"), query: "watch=true&timeoutSeconds=2&" + query, accept: accept})
		}
	}
	return all
}
