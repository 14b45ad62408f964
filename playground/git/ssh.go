package git

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/crypto/ssh"
)

// SSH serves repositories over SSH to the holders of the authorized keys.
type SSH struct {
	Root       string
	HostKey    ssh.Signer
	Authorized []ssh.PublicKey
}

// LoadHostKey reads a private key, or makes one.
func LoadHostKey(file string) (ssh.Signer, error) {
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, err
		}
		block, err := ssh.MarshalPrivateKey(key, "playground")
		if err != nil {
			return nil, err
		}
		b = pem.EncodeToMemory(block)
		if err := os.WriteFile(file, b, 0o600); err != nil {
			return nil, err
		}
	} else if err != nil {
		return nil, err
	}
	return ssh.ParsePrivateKey(b)
}

// LoadAuthorized reads an authorized_keys file.
func LoadAuthorized(file string) ([]ssh.PublicKey, error) {
	rest, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var keys []ssh.PublicKey
	for len(bytes.TrimSpace(rest)) > 0 {
		var key ssh.PublicKey
		if key, _, _, rest, err = ssh.ParseAuthorizedKey(rest); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Serve accepts connections until the listener closes.
func (s *SSH) Serve(l net.Listener) error {
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		for _, k := range s.Authorized {
			if bytes.Equal(k.Marshal(), key.Marshal()) {
				return nil, nil
			}
		}
		return nil, errors.New("key is not authorized")
	}}
	config.AddHostKey(s.HostKey)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go s.connection(conn, config)
	}
}

func (s *SSH) connection(conn net.Conn, config *ssh.ServerConfig) {
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return // refused: the client was told
	}
	defer server.Close() // it is gone either way
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
		go s.session(channel, requests)
	}
}

func (s *SSH) session(channel ssh.Channel, requests <-chan *ssh.Request) {
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
			cmd, ok := (*exec.Cmd)(nil), ssh.Unmarshal(req.Payload, &line) == nil
			if ok {
				cmd, ok = s.command(line.Command, protocol)
			}
			reply(req, ok)
			if ok {
				exit(channel, run(cmd, channel))
			}
			return
		default:
			reply(req, false)
		}
	}
}

// command understands "git-upload-pack 'path'" and nothing else.
func (s *SSH) command(line, protocol string) (*exec.Cmd, bool) {
	service, path, ok := strings.Cut(line, " ")
	if !ok || service != uploadPack && service != receivePack {
		return nil, false
	}
	dir, err := repository(s.Root, strings.Trim(path, "'"))
	if err != nil {
		return nil, false
	}
	return command(service, dir, protocol), true
}

func run(cmd *exec.Cmd, channel ssh.Channel) uint32 {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 1
	}
	cmd.Stdout, cmd.Stderr = channel, channel.Stderr()
	if err := cmd.Start(); err != nil {
		return 1
	}
	go func() {
		_, _ = io.Copy(stdin, channel) // ends with either side
		_ = stdin.Close()              // git may have ended before
	}()
	if err := cmd.Wait(); err != nil {
		return 1
	}
	return 0
}

func exit(channel ssh.Channel, status uint32) {
	_, _ = channel.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{status})) // the client may be gone
}

func reply(req *ssh.Request, ok bool) {
	if req.WantReply {
		_ = req.Reply(ok, nil) // the client may be gone
	}
}
