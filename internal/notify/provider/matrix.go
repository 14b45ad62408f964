package provider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"html"
	"net/http"
	"net/url"
	"strings"

	"github.com/sluice-gitops/sluice/internal/notify/event"
)

// matrixText is the maximum number of bytes of each format of the text: an event has 65,536.
const matrixText = 16 << 10

// matrix sends messages to a room:
// https://spec.matrix.org/latest/client-server-api/#put_matrixclientv3roomsroomidsendeventtypetxnid
type matrix struct {
	*client
	room, token string
}

func newMatrix(o Options) (Provider, error) {
	c, err := newClient(o, "")
	if err != nil {
		return nil, err
	}
	token, err := o.token("the access token of the sending account")
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(o.Channel, "!") {
		return nil, invalid("the channel of the Provider is not a Matrix room").
			WithHint("Set spec.channel to the internal ID of the room, !ID:HOST")
	}
	return &matrix{client: c, room: o.Channel, token: token}, nil
}

type matrixMessage struct {
	Type      string   `json:"msgtype"`
	Body      string   `json:"body"`
	Format    string   `json:"format"`
	Formatted string   `json:"formatted_body"`
	Mentions  struct{} `json:"m.mentions"` // none
}

var matrixMarkup = markup{escape: html.EscapeString, block: linesHTML, bold: boldHTML, link: linkHTML, end: "<br>"}

func (x *matrix) Send(ctx context.Context, e event.Event) error {
	m := MessageOf(e)
	body, err := encodeJSON(matrixMessage{Type: "m.text", Body: plain.render(m, matrixText),
		Format: "org.matrix.custom.html", Formatted: matrixMarkup.render(m, matrixText)})
	if err != nil {
		return err
	}
	_, err = x.send(ctx, http.MethodPut, x.url("_matrix/client/v3/rooms", url.PathEscape(x.room), "send/m.room.message",
		transaction(e, body)), body,
		"Content-Type", "application/json", "Authorization", "Bearer "+x.token)
	return err
}

// transaction returns the transaction ID of an event. It is the same for each attempt, so that the event is in the
// room once even if a response was lost.
func transaction(e event.Event, body []byte) string {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode(e) // plain data
	_, _ = h.Write(body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
