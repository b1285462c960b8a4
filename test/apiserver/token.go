package apiserver

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var accounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// issue answers a TokenRequest for an existing ServiceAccount. It stores nothing.
func (s *Server) issue(q *request) (*Answer, error) {
	var asked authenticationv1.TokenRequest
	if strings.HasPrefix(q.http.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		if _, _, err := serializerOf(true, typed).Serializer.Decode(q.body, nil, &asked); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	} else if err := json.Unmarshal(q.body, &asked); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if s.stores[accounts.GroupResource()].objects[keyOf(q.namespace, q.name)] == nil {
		return nil, apierrors.NewNotFound(accounts.GroupResource(), q.name)
	}
	life := time.Hour
	if asked.Spec.ExpirationSeconds != nil {
		life = time.Duration(*asked.Spec.ExpirationSeconds) * time.Second
	}
	token, until := s.o.Token(q.namespace, q.name, life)
	asked.TypeMeta = metav1.TypeMeta{Kind: "TokenRequest", APIVersion: authenticationv1.SchemeGroupVersion.String()}
	asked.Namespace, asked.Name = q.namespace, q.name
	asked.Status = authenticationv1.TokenRequestStatus{Token: token, ExpirationTimestamp: metav1.NewTime(until)}
	return encoded(http.StatusCreated, &asked), nil
}
