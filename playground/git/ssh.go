package git

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// handshake is how long a client may take to log in.
const handshake = 2 * time.Minute

// sshServer serves repositories over SSH to the holders of the authorized keys.
type sshServer struct {
	root           string // as resolve returned it
	hostKey        ssh.Signer
	authorizedKeys string // file
	stats          *stats
}

// serve accepts connections until the listener closes. Connections end with the context.
func (s *sshServer) serve(ctx context.Context, l net.Listener) error {
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions,
		error) {
		authorized, err := loadAuthorized(s.authorizedKeys)
		if err != nil {
			return nil, err
		}
		for _, k := range authorized {
			if bytes.Equal(k.Marshal(), key.Marshal()) {
				return nil, nil
			}
		}
		return nil, errors.New("key is not authorized")
	}}
	config.AddHostKey(s.hostKey)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go s.connection(ctx, conn, config)
	}
}

func (s *sshServer) connection(ctx context.Context, conn net.Conn, config *ssh.ServerConfig) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close() // it is gone either way
	if err := conn.SetDeadline(time.Now().Add(handshake)); err != nil {
		return
	}
	_, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return // the client got the refusal
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for c := range channels {
		if c.ChannelType() != "session" {
			_ = c.Reject(ssh.UnknownChannelType, "only sessions") // a client that is gone needs no answer
			continue
		}
		channel, requests, err := c.Accept()
		if err != nil {
			return
		}
		go s.session(ctx, channel, requests)
	}
}

func (s *sshServer) session(ctx context.Context, channel ssh.Channel, requests <-chan *ssh.Request) {
	defer channel.Close() // it is gone either way
	protocol := ""
	for req := range requests {
		switch req.Type {
		case "env":
			var env struct{ Name, Value string }
			if ssh.Unmarshal(req.Payload, &env) == nil && env.Name == "GIT_PROTOCOL" {
				protocol = env.Value
			}
			reply(req, true)
		case "exec":
			var line struct{ Command string }
			err := ssh.Unmarshal(req.Payload, &line)
			reply(req, err == nil)
			if err == nil {
				exit(channel, s.run(ctx, channel, line.Command, protocol))
			}
			return
		default:
			reply(req, false)
		}
	}
}

// run understands "git-upload-pack 'path'" and "git-receive-pack 'path'", and returns the exit status.
func (s *sshServer) run(ctx context.Context, channel ssh.Channel, line, protocol string) uint32 {
	service, quoted, _ := strings.Cut(line, " ")
	path, ok := unquote(quoted)
	if !ok || service != uploadPack && service != receivePack {
		return refuse(channel, "only git-upload-pack and git-receive-pack are served")
	}
	dir, err := repository(s.root, path)
	if err != nil {
		return refuse(channel, err.Error())
	}
	cmd := command(ctx, service, dir, protocol)
	cmd.Stdout, cmd.Stderr = sent{channel, s.stats}, channel.Stderr()
	return pipe(cmd, newReceived(channel, service, protocol, s.stats))
}

// pipe runs a command on what a client sends. The client may go on talking when the command has ended.
func pipe(cmd *exec.Cmd, in io.Reader) uint32 {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 1
	}
	if err := cmd.Start(); err != nil {
		return 1
	}
	go func() {
		_, _ = io.Copy(stdin, in) // ends with either side
		_ = stdin.Close()         // git may have ended before
	}()
	if err := cmd.Wait(); err != nil {
		return 1
	}
	return 0
}

func refuse(channel ssh.Channel, why string) uint32 {
	_, _ = io.WriteString(channel.Stderr(), why+"\n") // the client may be gone
	return 128
}

func exit(channel ssh.Channel, status uint32) {
	// the client may be gone
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status}))
}

func reply(req *ssh.Request, ok bool) {
	if req.WantReply {
		_ = req.Reply(ok, nil) // the client may be gone
	}
}

// unquote reads one word that a client quoted for a shell, as git does: 'it'\”s'.
func unquote(s string) (string, bool) {
	var word strings.Builder
	for quoted := false; s != ""; s = s[1:] {
		switch {
		case s[0] == '\'':
			quoted = !quoted
		case !quoted && s[0] == '\\' && len(s) > 1:
			s = s[1:]
			word.WriteByte(s[0])
		case !quoted && strings.IndexByte(" \t\n\"$`;&|<>(){}*?[]~#", s[0]) >= 0:
			return "", false
		default:
			word.WriteByte(s[0])
		}
		if len(s) == 1 && quoted {
			return "", false
		}
	}
	return word.String(), word.Len() > 0
}
