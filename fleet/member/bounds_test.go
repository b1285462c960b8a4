package member

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// TestEventValues: the values of an event are bounded.
func TestEventValues(t *testing.T) {
	event := func(values int) []byte { return []byte(`{"a":[` + strings.Repeat("0,", values-2) + `0]}`) }
	if _, err := readFrom(t.Context(), newAccount(), event(mostEventValues), "?watch=true"); err != nil { //nolint:bodyclose // It is canned.
		t.Errorf("at the bound: want the event read, got %v", err)
	}
	if _, err := readFrom(t.Context(), newAccount(), event(mostEventValues+1), "?watch=true"); excessive(err, "values of an event") != nil { //nolint:bodyclose // It is canned.
		t.Errorf("above the bound: want a LimitError, got %v", err)
	}
}

// TestVersionsOfGroup: the number of versions of an API group that are searched for objects is bounded.
func TestVersionsOfGroup(t *testing.T) {
	for versions, want := range map[int]bool{mostOfGroup: true, mostOfGroup + 1: false} {
		m := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/apis/example.com" {
				http.NotFound(w, r)
				return
			}
			var list []string
			for i := range versions {
				list = append(list, fmt.Sprintf(`{"groupVersion":"example.com/v%d","version":"v%d"}`, i+1, i+1))
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"apiVersion":"v1","kind":"APIGroup","name":"example.com","versions":[%s]}`, strings.Join(list, ","))
		})
		some, err := m.Objects.Any(t.Context(), schema.GroupResource{Group: "example.com", Resource: "widgets"})
		if some || (err == nil) != want || (!want && excessive(err, "versions of an API group") != nil) {
			t.Errorf("%d versions: want them accepted: %t, got %t, %v", versions, want, some, err)
		}
	}
}

// TestUnread: the part of an answer that arrives before it is read is bounded.
func TestUnread(t *testing.T) {
	sent := make(chan int, 1)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("want HTTP/2, got %s", r.Proto)
		}
		control, total, part := http.NewResponseController(w), 0, make([]byte, 16<<10)
		defer func() { sent <- total }()
		if err := control.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
			t.Error(err)
		}
		for total < 4*mostUnread {
			if _, err := w.Write(part); err != nil {
				return
			}
			if err := control.Flush(); err != nil {
				return // The client does not read, so the write ends with the deadline.
			}
			total += len(part)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	cfg := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true, NextProtos: []string{"h2"}}}
	client, closeIdle, err := httpClient(cfg, newLimits("m"))
	if err != nil {
		t.Fatal(err)
	}
	defer closeIdle()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if total := <-sent; total < mostUnread/2 || total > mostUnread {
		t.Errorf("want at most %d unread bytes sent, got %d", mostUnread, total)
	}
}
