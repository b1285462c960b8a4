package admission

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// large returns a pizza of about 10 KB.
func large() string {
	var out strings.Builder
	out.WriteString(`{"metadata":{"name":"large"},"spec":{"toppings":null,"color":"red","layers":[`)
	for i := range 100 {
		fmt.Fprintf(&out, `{"name":"layer-%d","quantity":%d,"oven":{"degrees":250,"wood":{}},"inner":{"size":"L"},"future":%d},`, i, i%3, i)
	}
	out.WriteString(`{"name":"last"}]}}`)
	return out.String()
}

func BenchmarkDefault(b *testing.B) {
	cases := map[string]func(*pizza){
		"Nothing": func(*pizza) {},
		"One":     func(p *pizza) { p.Spec.Toppings = []string{"tomato"} },
		"Third": func(p *pizza) {
			for i := range p.Spec.Layers {
				if p.Spec.Layers[i].Quantity == 0 {
					p.Spec.Layers[i].Quantity = 1
				}
			}
		},
	}
	body := question(isPizza + `"operation":"CREATE","object":` + large())
	for name, f := range cases {
		h := Mutating(Default(pizzas, "Pizza", func(_ context.Context, _ *Request, p *pizza) error {
			f(p)
			return nil
		}))
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/", strings.NewReader(body)))
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
