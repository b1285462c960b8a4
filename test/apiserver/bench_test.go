package apiserver

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// asked sends a request, and fails the benchmark or test on an error response.
func asked(tb testing.TB, s *Server, method, path, media, body string) {
	tb.Helper()
	r := httptest.NewRequest(method, path, nil)
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	r.Header.Set("User-Agent", "test/1.0")
	a := s.Serve(r, []byte(body))
	if a.Code >= http.StatusMultipleChoices {
		tb.Fatalf("%s %s: %d\n%s", method, path, a.Code, a.Body)
	}
}

const deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"%s","labels":{"app":"web"}},"spec":{"replicas":%d,"selector":{"matchLabels":{"app":"web"}},` +
	`"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"a","image":"a:1","args":["-v"],"ports":[{"containerPort":80}],"env":[{"name":"A","value":"1"}]}],"volumes":[{"name":"c","emptyDir":{}}]}}}}`

// BenchmarkServer measures the most frequent requests of simulations.
func BenchmarkServer(b *testing.B) {
	types := append(BuiltIn(), refractTypes(b)...)
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	applied := func(b *testing.B, s *Server, name string, replicas int) {
		b.Helper()
		asked(b, s, http.MethodPatch, deployments+"/"+name+"?fieldManager=refract&force=true", "application/apply-patch+yaml", fmt.Sprintf(deployment, name, replicas))
	}
	started := func() *Server {
		s := New(Options{Types: types})
		s.Wipe()
		return s
	}
	filled := func(b *testing.B) *Server {
		b.Helper()
		s := started()
		for i := range 5 {
			applied(b, s, fmt.Sprintf("web-%d", i), 1)
		}
		return s
	}
	run := func(name string, do func(s *Server, i int)) {
		b.Run(name, func(b *testing.B) {
			s := filled(b)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i++
				do(s, i)
				if i%1000 == 0 {
					s.Compact()
				}
			}
		})
	}
	b.Run("Start", func(b *testing.B) {
		for b.Loop() {
			started()
		}
	})
	run("Get", func(s *Server, _ int) { asked(b, s, http.MethodGet, deployments+"/web-1", "", "") })
	run("List", func(s *Server, _ int) { asked(b, s, http.MethodGet, deployments+"?limit=500", "", "") })
	run("ApplySame", func(s *Server, _ int) { applied(b, s, "web-1", 1) })
	run("Apply", func(s *Server, i int) { applied(b, s, "web-1", i%5) })
	run("Metadata", func(s *Server, i int) {
		applied(b, s, "web-1", i%5)
		r := httptest.NewRequest(http.MethodGet, deployments, nil)
		r.Header.Set("Accept", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
		if a := s.Serve(r, nil); a.Code != http.StatusOK {
			b.Fatal(string(a.Body))
		}
	})
	run("Update", func(s *Server, i int) {
		asked(b, s, http.MethodPut, deployments+"/web-1", "application/json", fmt.Sprintf(deployment, "web-1", i%5))
	})
	run("Status", func(s *Server, i int) {
		asked(b, s, http.MethodPatch, deployments+"/web-1/status", "application/merge-patch+json", fmt.Sprintf(`{"status":{"replicas":%d}}`, i%5))
	})
	run("Watch", func(s *Server, i int) {
		w, refused := s.Watch(httptest.NewRequest(http.MethodGet, deployments+"?watch=true&resourceVersion="+fmt.Sprint(s.Version()), nil))
		if refused != nil {
			b.Fatal(string(refused.Body))
		}
		asked(b, s, http.MethodPatch, deployments+"/web-1", "application/merge-patch+json", fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}}}`, i))
		if e := string(w.Next()); !strings.Contains(e, "MODIFIED") {
			b.Fatal(e)
		}
		w.Stop()
	})
}
