package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestZZRoom(t *testing.T) {
	s, url := local(t, Options{})
	s.Handle("/v", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "ok") }))
	start(t, s)
	_ = url
	for range 16 {
		c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", s.Address())
		if err != nil { t.Fatal(err) }
		defer c.Close()
		fmt.Fprintf(c, "POST /v HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 4<<20)
		_ = c
	}
	time.Sleep(500*time.Millisecond)
	for _, to := range []string{"", "?timeout=10s"} {
		b := time.Now()
		r, text, err := post(t.Context(), caller(s.certificates.Trusted()), "https://"+s.Address()+"/v"+to, strings.NewReader("{}"))
		t.Log(to, r, text, err, time.Since(b))
	}
	_ = context.Background
}

func TestZZSecretOtherKeys(t *testing.T) {
	_ = corev1.Secret{}
	_ = types.NamespacedName{}
}
